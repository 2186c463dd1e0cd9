# What people type. "make test" is the whole proof, and what .ci/run runs.

# Pinned, so that a new release cannot fail an old commit.
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2

# How long each fuzz target runs: a number of inputs (1000x) or a time (1m).
FUZZ = 2000x

# A checkout that belongs to somebody else must build too.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

.PHONY: test tools check fuzz cover race run bench fmt diagrams

# The last lines are those of go test.
test: tools check fuzz cover race

# tools installs what a bare Debian machine lacks.
tools:
	@missing=; \
	need() { PATH="$$PATH:/usr/sbin" command -v $$1 >/dev/null || missing="$$missing $$2"; }; \
	need redis-server redis-server; \
	need redis-cli redis-tools; \
	need nginx nginx-light; \
	need caddy caddy; \
	need haproxy haproxy; \
	need curl curl; \
	need tmux tmux; \
	need cc "gcc libc6-dev"; \
	need go golang-go; \
	if [ -n "$$missing" ]; then \
		echo "==> installing$$missing"; \
		sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
		$$sudo apt-get update && \
		$$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$missing || exit 1; \
	fi; \
	go version >/dev/null || { echo "go.mod asks for a Go that this one cannot fetch: install it from https://go.dev/dl/"; exit 1; }

# check reads the code: formatting, vet, staticcheck. bench is a module of its own.
check:
	@echo "==> gofmt"; \
	unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "$$unformatted: run make fmt"; exit 1; fi
	@for dir in . bench; do \
		echo "==> vet, staticcheck: $$dir" && \
		(cd $$dir && go vet ./... && go run $(STATICCHECK) ./...) || exit 1; \
	done

# fuzz runs every fuzz target for a moment. A package is built once for all of its targets. They
# begin with the seeds alone: what earlier runs kept takes longer to read with each of them, and
# a clean machine has none. What is only new is hardly made smaller, which would take up to a minute each.
fuzz:
	@bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT && \
	for dir in $$(grep -rlE --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		cd "$(CURDIR)/$$dir" && go test -c -fuzz . -o "$$bin/test" . || exit 1; \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' *_test.go); do \
			echo "==> $$name in $$dir ($(FUZZ))"; \
			"$$bin/test" -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime $(FUZZ) \
				-test.fuzzminimizetime 20x -test.fuzzcachedir "$$bin/$$dir" </dev/null || exit 1; \
		done; \
	done

# The slowest packages go first, or a processor is idle in the end. Much of their time they wait for servers: three
# packages run at a time.
SLOW = ./internal/cli ./internal/faulttest ./internal/ruleset/redissource ./internal/redisconn
# What passes the suite of stores, on memory and on Redis.
STORES = ./redisstore ./layers ./internal/layers/... ./memstore ./observe ./storetest
# Tests of what tests need: they start servers, and read the tree.
SUPPORT = ./internal/redistest ./internal/housetest

# What is there for tests only does not count.
TESTING = examples|storetest|internal/(redistest|faulttest|housetest)|internal/algorithm/stories

without = $$(go list ./... | grep -vxF "$$(go list $(1))")

# cover runs all tests without the race detector, under which allocations cannot be counted, and says how much of the
# code they reach. What a layer breaks of a store, it breaks in a few of the draws.
cover:
	@echo "==> tests, coverage"
	@go test -p 3 -coverprofile=cover.out ./redisstore $(SLOW) $(call without,./redisstore $(SLOW) ./layers ./internal/layers/...)
	@RAPID_CHECKS=25 go test -p 3 -coverprofile=layers.out ./layers ./internal/layers/...
	@tail -n +2 layers.out >> cover.out
	@grep -vE '/($(TESTING))/' cover.out > product.out && go tool cover -func=product.out | tail -n 1

# race runs all tests with it, which is slow, and the suite of stores with fewer draws: a race shows soon or never. So
# do the files race_test.go.
# MEASURING are tests of one goroutine that measure memory, for half a minute each under the detector.
MEASURING = TestResetAfterFullStoreKeepsMemoryBounded|TestParsingTakesLittleRoom
race:
	@echo "==> tests of bench"
	@cd bench && go test ./...
	@echo "==> tests, race detector"
	@RAPID_CHECKS=20 go test -p 3 -race -skip '$(MEASURING)' $(STORES)
	@go test -p 3 -race -skip '$(MEASURING)' $(SLOW) $(call without,$(SLOW) $(STORES) $(SUPPORT))

run:
	go run ./cmd/weir serve --limit "5/10s" --upstream demo

bench:
	cd bench && go run .

fmt:
	gofmt -w .

# diagrams draws the pictures of the pages anew; it needs Graphviz.
diagrams:
	docs/img/draw.sh $(notdir $(wildcard docs/img/*.dot))
