// Command sms sends codes by text message, to one phone at most one a minute, five an hour
// and ten a day: a code that the first limit refuses is not charged to the other two.
//
//	go run ./examples/sms
//	curl -i --data-urlencode phone=+861055550100 http://127.0.0.1:8080/code     (the second is refused)
//
// The limits guard a function, not a route: every caller is limited.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirproject/weir"
	"github.com/weirproject/weir/memstore"
)

func main() {
	handler, err := codes(memstore.New(), sendBy(log.Default()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("Ask for a code, twice: curl -i --data-urlencode phone=+861055550100 http://127.0.0.1:8080/code")
	log.Fatal(http.ListenAndServe("127.0.0.1:8080", handler))
}

// send sends a code to a phone, and returns the message's number.
type send func(ctx context.Context, phone string) (string, error)

func sendBy(logger *log.Logger) send {
	return func(_ context.Context, phone string) (string, error) {
		logger.Printf("a code goes to %s", phone)
		return "message-1", nil
	}
}

// codes is the service: POST /code with a phone.
func codes(store weir.Store, send send) (http.Handler, error) {
	limiter, err := weir.New(store, "sms",
		weir.SlidingLog{Limit: 1, Window: time.Minute},
		weir.SlidingLog{Limit: 5, Window: time.Hour},
		weir.Calendar{Limit: 10, Unit: weir.Day, Zone: "Asia/Shanghai"},
	)
	if err != nil {
		return nil, err
	}
	guarded := weir.Guard(limiter, byPhone, send, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /code", func(w http.ResponseWriter, r *http.Request) {
		message, err := guarded(r.Context(), r.PostFormValue("phone"))
		answer(w, message, err)
	})
	return mux, nil
}

var errNoPhone = errors.New("phone must be + and 8 to 15 digits, such as +861055550100")

// byPhone is the key: one form of a number, or writing it otherwise would evade the limit.
func byPhone(_ context.Context, phone string) ([]string, error) {
	digits := strings.NewReplacer(" ", "", "-", "", "(", "", ")", "").Replace(phone)
	number, plus := strings.CutPrefix(digits, "+")
	if _, err := strconv.ParseUint(number, 10, 64); err != nil || !plus || len(number) < 8 || len(number) > 15 {
		return nil, errNoPhone
	}
	return []string{"phone:+" + number}, nil
}

func answer(w http.ResponseWriter, message string, err error) {
	var refused *weir.RefusedError
	switch {
	case err == nil:
		fmt.Fprintln(w, message)
	case errors.As(err, &refused):
		wait := (refused.Answer.RetryAfter + time.Second - 1) / time.Second
		w.Header().Set("Retry-After", strconv.FormatInt(int64(wait), 10))
		http.Error(w, fmt.Sprintf("The next code can be sent in %d s.", wait), http.StatusTooManyRequests)
	case errors.Is(err, errNoPhone):
		http.Error(w, err.Error(), http.StatusBadRequest)
	default: // codes cost money: without the limiter none are sent
		log.Print(err)
		http.Error(w, "No code can be sent now.", http.StatusServiceUnavailable)
	}
}
