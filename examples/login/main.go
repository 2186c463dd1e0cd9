// Command login is a log-in page that is tried at most 5 times a minute from one address and
// 3 times a minute for one user, in one decision: an attempt that the user's limit refuses
// does not count against the address.
//
// An address with 10 refusals within 10 minutes is banned for 15 minutes, then for an hour, then
// for a day.
//
//	go run ./examples/login
//	curl -i -d user=ann -d password=guess http://127.0.0.1:8080/login     (the fourth is refused)
package main

import (
	_ "embed"
	"fmt"
	"log"
	"net/http"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/gate"
	"github.com/weirproject/weir/httplimit"
	"github.com/weirproject/weir/memstore"
	"github.com/weirproject/weir/rules"
)

//go:embed rules.yaml
var ruleFile []byte

func main() {
	handler, err := page(memstore.New())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Guess four times: curl -i -d user=ann -d password=guess http://127.0.0.1:8080/login")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

// page is the log-in page behind its limits. With a store on Redis they are those of all
// nodes; while it does not answer, each node counts by itself.
func page(store weir.Store) (http.Handler, error) {
	set, err := rules.Load("rules.yaml", ruleFile)
	if err != nil {
		return nil, err
	}
	g, err := gate.New(store, set, gate.WithLocal(memstore.New()))
	if err != nil {
		return nil, err
	}
	limited, err := httplimit.ByRules(g, &httplimit.RuleOptions{Descriptor: field})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", logIn)
	return http.MaxBytesHandler(limited(mux), 4<<10), nil
}

// field is a field of the form. Reading it here is safe: the handler finds it read.
func field(r *http.Request, name string) string { return r.PostFormValue(name) }

func logIn(w http.ResponseWriter, r *http.Request) {
	if r.PostFormValue("user") == "ann" && r.PostFormValue("password") == "correct horse" {
		fmt.Fprintln(w, "Welcome.")
		return
	}
	http.Error(w, "Wrong user or password.", http.StatusUnauthorized)
}
