package rpcapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/internal/gatetest"
	"github.com/weirproject/weir/internal/server/api"
	"github.com/weirproject/weir/internal/server/grpcserver"
	"github.com/weirproject/weir/internal/server/rpcapi"
	"github.com/weirproject/weir/internal/server/web"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/pathform"
	weirv1 "github.com/weirproject/weir/proto/weir/v1"
)

const someRules = `
rules:
  - {name: login, match: {method: POST, path: /login}, key: [client.ip], limit: fixed_window 2/1h, message: {en: wait}}
  - {name: tried, match: {path: /login}, key: [client.ip], mode: shadow, limit: fixed_window 1/1h}
  - {name: plan, match: {descriptor: {tier: free}}, key: [descriptor.tier], limit: fixed_window 1/1h}
  - {name: exact, match: {descriptor_keys: [b, a]}, key: [descriptor.a], limit: fixed_window 1/1h}
  - {name: export, match: {path: /export}, limit: 5/1h, on_store_error: deny}
  - {name: open, match: {path: /open}, limit: 5/1h, on_store_error: allow}
`

type uncounted struct{}

func (uncounted) Began()               {}
func (uncounted) Ended(string, string) {}
func (uncounted) Panicked()            {}

// connect starts a server with a store, and connects to it.
func connect(t testing.TB, store weir.Store, tokens ...web.Token) *grpc.ClientConn {
	t.Helper()
	access, err := web.NewAccess(web.Config{Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := rpcapi.New(gatetest.New(t, store, someRules), pathform.Form{})
	if err != nil {
		t.Fatal(err)
	}
	server := grpcserver.New(grpcserver.Config{Access: access, Ready: func() bool { return true }, Counts: uncounted{},
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Warn: func(string, ...any) {}}, limiter)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(l)
	t.Cleanup(server.Close)
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func dial(t testing.TB, store weir.Store, tokens ...web.Token) weirv1.LimiterClient {
	t.Helper()
	return weirv1.NewLimiterClient(connect(t, store, tokens...))
}

// stopped is a store whose clock stands still.
func stopped() weir.Store {
	return memstore.New(memstore.WithClock(func() weir.Instant { return 1_790_000_000_000_000 }))
}

func start(t testing.TB) weirv1.LimiterClient { return dial(t, stopped()) }

func login() *weirv1.Request {
	return &weirv1.Request{Method: "POST", Path: "//login", Client: "203.0.113.7"}
}

func jobs() []*weirv1.Claim {
	return []*weirv1.Claim{{Name: "jobs", Limit: "concurrency 1 ttl 30s", Key: "ann"}}
}

func TestDecide(t *testing.T) {
	c := start(t)
	for i, want := range []weirv1.Outcome{weirv1.Outcome_OUTCOME_PASSED, weirv1.Outcome_OUTCOME_PASSED,
		weirv1.Outcome_OUTCOME_REFUSED} {
		answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: login()})
		if err != nil {
			t.Fatal(err)
		}
		d := answer.Decision
		if d.Outcome != want || d.Rule != "login" || d.Allowed != (i < 2) {
			t.Errorf("request %d: %v", i, d)
		}
		if i == 1 && (len(d.Checks) != 2 || d.Checks[0].Refused != nil || !d.Checks[1].GetRefused() || !d.Checks[1].Shadow) {
			t.Errorf("checks: %v", d.Checks)
		}
	}
	answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: login()})
	if err != nil {
		t.Fatal(err)
	}
	d := answer.Decision
	if d.Reason != "limit_exceeded" || d.Message != "wait" || d.Language != "en" || d.RetryAfter != 3600 ||
		d.RetryAfterUs != 3600e6 {
		t.Errorf("refused: %v", d)
	}
}

func TestDryRunChargesNothing(t *testing.T) {
	c := start(t)
	for range 3 {
		answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: login(), DryRun: true})
		if err != nil || answer.Decision.Remaining != 2 || answer.Decision.Checks[0].Key == "" {
			t.Fatalf("%v %v", answer, err)
		}
	}
}

func TestUnitsAndTimes(t *testing.T) {
	c := start(t)
	claims := []*weirv1.Claim{{Name: "bytes", Limit: "fixed_window 100/1h", Key: "ann"}}
	answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Claims: claims, Cost: proto.Int64(30), Times: proto.Int64(5)})
	if err != nil || answer.Decision.Granted != 3 || answer.Decision.Remaining != 10 {
		t.Errorf("%v %v; want 3 grants of 30 units", answer, err)
	}
	claims[0].Cost = proto.Int64(0)
	answer, err = c.Decide(t.Context(), &weirv1.DecideRequest{Claims: claims, Cost: proto.Int64(30)})
	if err != nil || answer.Decision.Remaining != 10 {
		t.Errorf("a cost of 0: %v %v", answer, err)
	}
}

// TestDescriptorsKeepTheirOrder: descriptor_keys is an exact list.
func TestDescriptorsKeepTheirOrder(t *testing.T) {
	c := start(t)
	for want, names := range map[string][]string{"exact": {"b", "a"}, "": {"a", "b"}} {
		r := new(weirv1.Request)
		for _, name := range names {
			r.Descriptors = append(r.Descriptors, &weirv1.Descriptor{Name: name, Value: "x"})
		}
		answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: r})
		if err != nil || answer.Decision.Rule != want {
			t.Errorf("%v: %v %v, want rule %q", names, answer, err, want)
		}
	}
}

func TestReservationsAreSettledOnce(t *testing.T) {
	c := start(t)
	claims := []*weirv1.ReservedClaim{{Name: "tokens", Limit: "fixed_window 100/1h", Key: "ann"}}
	reserved, err := c.Reserve(t.Context(), &weirv1.ReserveRequest{Claims: claims, Cost: proto.Int64(80), Ttl: "10m"})
	if err != nil || reserved.Decision.Reservation.GetTtlUs() != 600e6 {
		t.Fatalf("%v %v", reserved, err)
	}
	settle := &weirv1.SettleRequest{Token: reserved.Decision.Reservation.Token, Actual: proto.Int64(30)}
	settled, err := c.Settle(t.Context(), settle)
	if err != nil || !settled.Settled || settled.GetActual() != 30 || settled.Status != nil {
		t.Errorf("%v %v", settled, err)
	}
	if _, err = c.Settle(t.Context(), settle); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("settled again: %v", err)
	}
	left, err := c.Decide(t.Context(), &weirv1.DecideRequest{DryRun: true,
		Claims: []*weirv1.Claim{{Name: "tokens", Limit: "fixed_window 100/1h", Key: "ann"}}})
	if err != nil || left.Decision.Remaining != 70 {
		t.Errorf("%v %v; want 70 units left", left, err)
	}
	refused, err := c.Reserve(t.Context(), &weirv1.ReserveRequest{Claims: claims, Cost: proto.Int64(80)})
	if err != nil || refused.Decision.Outcome != weirv1.Outcome_OUTCOME_REFUSED || refused.Decision.Reservation != nil {
		t.Errorf("refused: %v %v", refused, err)
	}
}

func TestLeasesAreRenewedAndReleased(t *testing.T) {
	c := start(t)
	held, err := c.Acquire(t.Context(), &weirv1.AcquireRequest{Claims: jobs()})
	if err != nil || held.Decision.Lease.GetTtlUs() != 30e6 {
		t.Fatalf("%v %v", held, err)
	}
	refused, err := c.Acquire(t.Context(), &weirv1.AcquireRequest{Claims: jobs()})
	if err != nil || refused.Decision.Allowed || refused.Decision.Lease != nil {
		t.Errorf("a second one: %v %v", refused, err)
	}
	again, err := c.Acquire(t.Context(), &weirv1.AcquireRequest{Claims: jobs(), Lease: held.Decision.Lease.Id})
	if err != nil || !again.Decision.Allowed {
		t.Errorf("the same one again: %v %v", again, err)
	}
	token := held.Decision.Lease.Token
	renewed, err := c.Renew(t.Context(), &weirv1.RenewRequest{Token: token})
	if err != nil || !renewed.Renewed || renewed.TtlUs != 30e6 {
		t.Errorf("%v %v", renewed, err)
	}
	released, err := c.Release(t.Context(), &weirv1.ReleaseRequest{Token: token})
	if err != nil || !released.Released {
		t.Errorf("%v %v", released, err)
	}
	if _, err = c.Renew(t.Context(), &weirv1.RenewRequest{Token: token}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("renewed after the release: %v", err)
	}
	if free, err := c.Acquire(t.Context(), &weirv1.AcquireRequest{Claims: jobs()}); err != nil || !free.Decision.Allowed {
		t.Errorf("after the release: %v %v", free, err)
	}
}

func TestBadInputIsNamed(t *testing.T) {
	c := start(t)
	newer := &weirv1.DecideRequest{Request: login()}
	newer.ProtoReflect().SetUnknown(protoreflect.RawFields{0x98, 0x06, 1}) // field 99
	named := &weirv1.Descriptor{Name: "tier"}
	named.ProtoReflect().SetUnknown(protoreflect.RawFields{0x98, 0x06, 1})
	twice := []*weirv1.Descriptor{{Name: "a"}, {Name: "a"}}
	for field, r := range map[string]*weirv1.DecideRequest{
		"request":                  {},
		"times":                    {Request: login(), Times: proto.Int64(0)},
		"cost":                     {Request: login(), Cost: proto.Int64(-1)},
		"request.client":           {Request: &weirv1.Request{Client: "nobody"}},
		"claims[1].limit":          {Claims: append(jobs(), &weirv1.Claim{Name: "n", Limit: "often", Key: "k"})},
		"claims[0].name":           {Claims: []*weirv1.Claim{{Name: "weir.x", Limit: "1/1h", Key: "k"}}},
		"request.headers":          {Request: &weirv1.Request{Headers: map[string]string{"A": "1", "a": "1"}}},
		"request.user":             {Request: &weirv1.Request{User: strings.Repeat("ü", 8<<10)}},
		"lease":                    {Claims: jobs(), Lease: strings.Repeat("x", weir.MaxLease+1)},
		"claims":                   {Claims: slices.Repeat(jobs(), weir.MaxClaims+1)},
		"field number 99":          newer,
		"request.descriptors.tier": {Request: &weirv1.Request{Descriptors: []*weirv1.Descriptor{named}}},
		"request.descriptors.a":    {Request: &weirv1.Request{Descriptors: twice}},
	} {
		_, err := c.Decide(t.Context(), r)
		violation := violationOf(t, err)
		if !strings.Contains(violation.GetField(), field) || !strings.Contains(violation.GetDescription(), "allowed: ") {
			t.Errorf("%s: %v, detail %v", field, err, violation)
		}
	}
	_, settled := c.Settle(t.Context(), &weirv1.SettleRequest{Token: "x", Actual: proto.Int64(1)})
	_, missing := c.Settle(t.Context(), &weirv1.SettleRequest{Token: "x"})
	_, renewed := c.Renew(t.Context(), &weirv1.RenewRequest{Token: "x"})
	_, released := c.Release(t.Context(), &weirv1.ReleaseRequest{})
	_, reserved := c.Reserve(t.Context(), &weirv1.ReserveRequest{Request: login(), Ttl: "8d"})
	_, acquired := c.Acquire(t.Context(), &weirv1.AcquireRequest{Request: login(), Cost: proto.Int64(weir.MaxUnits + 1)})
	for field, errs := range map[string][]error{"token": {settled, renewed, released}, "actual": {missing},
		"ttl": {reserved}, "cost": {acquired}} {
		for _, err := range errs {
			if got := violationOf(t, err).GetField(); got != field {
				t.Errorf("%v names %q, want %q", err, got, field)
			}
		}
	}
	answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: login(), DryRun: true})
	if err != nil || answer.Decision.Remaining != 2 {
		t.Errorf("%v %v; want nothing charged", answer, err)
	}
}

func violationOf(t testing.TB, err error) *errdetails.BadRequest_FieldViolation {
	t.Helper()
	s := status.Convert(err)
	if s.Code() != codes.InvalidArgument || len(s.Details()) != 1 {
		t.Errorf("%v with %d details", err, len(s.Details()))
		return nil
	}
	return s.Details()[0].(*errdetails.BadRequest).FieldViolations[0]
}

// down is a store that does not answer.
type down struct{ weir.Store }

func (down) Decide(context.Context, []weir.Claim, int64, []weir.Decision) (int64, error) {
	return 0, weir.ErrUnavailable
}

func TestPolicyDecidesWhileTheStoreIsDown(t *testing.T) {
	c := dial(t, down{memstore.New()})
	for path, want := range map[string]weirv1.Outcome{"/export": weirv1.Outcome_OUTCOME_FAILED,
		"/open": weirv1.Outcome_OUTCOME_PASSED} {
		answer, err := c.Decide(t.Context(), &weirv1.DecideRequest{Request: &weirv1.Request{Path: path}})
		if err != nil {
			t.Fatal(err)
		}
		if d := answer.Decision; d.Outcome != want || d.Reason != "store_failed" || !d.Degraded {
			t.Errorf("%s: %v", path, d)
		}
	}
}

func TestTokens(t *testing.T) {
	const writer, reader = "0123456789abcdef-write", "0123456789abcdef-read"
	c := dial(t, memstore.New(), web.Token{Secret: writer, Write: true}, web.Token{Secret: reader})
	for token, want := range map[string]codes.Code{"": codes.Unauthenticated, "Bearer x": codes.Unauthenticated,
		"Bearer " + reader: codes.PermissionDenied, "Bearer " + writer: codes.OK} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", token)
		if _, err := c.Decide(ctx, &weirv1.DecideRequest{Request: login()}); status.Code(err) != want {
			t.Errorf("%q: %v, want %v", token, err, want)
		}
	}
}

func TestOutcomesAreThoseOfTheGate(t *testing.T) {
	values := weirv1.Outcome_name
	if len(values) != int(gate.Failed)+2 {
		t.Errorf("%d outcomes", len(values))
	}
	for o := gate.Passed; o <= gate.Failed; o++ {
		if want := "OUTCOME_" + strings.ToUpper(o.String()); values[int32(o)+1] != want {
			t.Errorf("outcome %d is %s, want %s", o+1, values[int32(o)+1], want)
		}
	}
}

// TestFieldsAreThoseOfHTTP: a field of one API that the other has not would be forgotten.
func TestFieldsAreThoseOfHTTP(t *testing.T) {
	var document struct {
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(api.Document(), &document); err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]proto.Message{"Decide": &weirv1.DecideRequest{}, "Reserve": &weirv1.ReserveRequest{},
		"Settle": &weirv1.SettleRequest{}, "Acquire": &weirv1.AcquireRequest{}, "Token": &weirv1.RenewRequest{},
		"Request": &weirv1.Request{}, "Claim": &weirv1.Claim{}, "ReservedClaim": &weirv1.ReservedClaim{},
		"ReserveAnswer": &weirv1.Decision{}, "Check": &weirv1.Check{}, "Skipped": &weirv1.Skipped{},
		"Exception": &weirv1.Exception{}, "Lease": &weirv1.Lease{}, "Reservation": &weirv1.Reservation{},
		"Settled": &weirv1.SettleResponse{}, "Renewed": &weirv1.RenewResponse{}, "Released": &weirv1.ReleaseResponse{}} {
		var want, got []string
		for property := range document.Components.Schemas[name].Properties {
			alone := []string{"route", "service", "client", "request_id", "response", "repeated"}
			if name == "ReserveAnswer" && slices.Contains(alone, property) ||
				(name == "Decide" || name == "Reserve") && (property == "id" || property == "for") {
				continue // of a peek, and over HTTP alone: the id and the client of a request, and repetitions
			}
			if property != "error" { // of a batch
				want = append(want, property)
			}
		}
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			got = append(got, string(fields.Get(i).Name()))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s has the fields %v, over HTTP %v", m.ProtoReflect().Descriptor().Name(), got, want)
		}
	}
}

// TestGeneratedCodeIsOfTheProto: make proto generates it anew.
func TestGeneratedCodeIsOfTheProto(t *testing.T) {
	const source = "../../../proto"
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Fatal("protoc is not installed: run make tools")
	}
	out := filepath.Join(t.TempDir(), "set")
	if text, err := exec.Command(protoc, "-I", source, "-o", out, "weir/v1/limiter.proto").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(text, &set); err != nil {
		t.Fatal(err)
	}
	generated := protodesc.ToFileDescriptorProto(weirv1.File_weir_v1_limiter_proto)
	for _, f := range append(set.File, generated) {
		for _, m := range f.MessageType {
			for _, field := range m.Field {
				field.JsonName = nil // protoc leaves it out of the set
			}
			for _, nested := range m.NestedType {
				for _, field := range nested.Field {
					field.JsonName = nil
				}
			}
		}
	}
	if !proto.Equal(set.File[0], generated) {
		t.Error("proto/weir/v1 is not generated from limiter.proto: run make proto")
	}
}

// FuzzDecide sends any message: it is decided, or its mistake is an error of the caller.
func FuzzDecide(f *testing.F) {
	for _, r := range []*weirv1.DecideRequest{{Request: login()}, {Claims: jobs(), Cost: proto.Int64(-1)},
		{Request: &weirv1.Request{Headers: map[string]string{"\"": "\u2028"}, Host: "\\", Descriptors: []*weirv1.Descriptor{
			{Name: "{", Value: "}"}}}}} {
		wire, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(wire)
	}
	c := start(f)
	f.Fuzz(func(t *testing.T, wire []byte) {
		r := new(weirv1.DecideRequest)
		if proto.Unmarshal(wire, r) != nil {
			return
		}
		answer, err := c.Decide(t.Context(), r)
		switch s := status.Convert(err); {
		case s.Code() == codes.OK && answer.GetDecision().GetOutcome() == weirv1.Outcome_OUTCOME_UNSPECIFIED:
			t.Errorf("no outcome: %v", answer)
		case s.Code() != codes.OK && s.Code() != codes.InvalidArgument:
			t.Errorf("%v", err)
		case !utf8.ValidString(s.Message()) || strings.Contains(s.Message(), "not JSON"):
			t.Errorf("the message is %q", s.Message())
		}
	})
}
