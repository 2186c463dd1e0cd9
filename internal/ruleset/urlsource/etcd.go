package urlsource

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// An etcd is a key of etcd, read and watched by its JSON gateway, which needs no gRPC:
// https://etcd.io/docs/v3.6/dev-guide/api_grpc_gateway.
type etcd struct {
	*Source
	key      []byte
	revision int64  // of the store when the key was read
	token    string // of the last login
}

func (s *Source) newEtcd(path []string) (center, error) {
	if err := s.parts([]string{strings.Join(path, "/")}, "etcd+https://HOST:PORT/KEY"); err != nil {
		return nil, err
	}
	return &etcd{Source: s, key: []byte(strings.Join(path, "/"))}, nil
}

func (e *etcd) read(ctx context.Context) ([]byte, error) {
	response, err := e.post(ctx, "/v3/kv/range", map[string]any{"key": e.key})
	if err != nil {
		return nil, err
	}
	body, err := readAll(response, maxAnswer)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
		Keys []struct {
			Value []byte `json:"value"`
		} `json:"kvs"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	if len(answer.Keys) == 0 {
		return nil, errors.New("the key does not exist")
	}
	e.revision = answer.Header.Revision
	return answer.Keys[0].Value, nil
}

// await reads the stream of a watch until its first event.
func (e *etcd) await(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, longPoll)
	defer cancel()
	watch := map[string]any{"key": e.key, "start_revision": e.revision + 1}
	response, err := e.post(limited, "/v3/watch", map[string]any{"create_request": watch})
	if err == nil {
		defer response.Body.Close()
		err = untilEvent(response.Body)
	}
	if limited.Err() != nil && ctx.Err() == nil {
		return nil // nothing changed for longPoll
	}
	return err
}

func untilEvent(stream io.Reader) error {
	decoder := json.NewDecoder(io.LimitReader(stream, 2*maxAnswer)) // an event has the old and the new value
	for {
		var message struct {
			Result struct {
				Compacted string            `json:"compact_revision"` // the revision is too old to watch from
				Canceled  bool              `json:"canceled"`
				Reason    string            `json:"cancel_reason"`
				Events    []json.RawMessage `json:"events"`
			} `json:"result"`
			Error json.RawMessage `json:"error"`
		}
		switch err := decoder.Decode(&message); {
		case err != nil:
			return fmt.Errorf("the watch breaks off: %w", err)
		case message.Error != nil:
			return errors.New("the watch was refused")
		case message.Result.Compacted != "" || len(message.Result.Events) > 0:
			return nil
		case message.Result.Canceled:
			return fmt.Errorf("the watch was cancelled: %.80q", message.Result.Reason)
		}
	}
}

// post sends a message with the token of a login.
func (e *etcd) post(ctx context.Context, path string, message any) (*http.Response, error) {
	return e.authorized(ctx, e.authenticate, func() (*http.Request, error) {
		return e.message(ctx, path, message)
	})
}

func (e *etcd) message(ctx context.Context, path string, message any) (*http.Request, error) {
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	request, err := e.ask(ctx, http.MethodPost, path, nil, body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if e.token != "" {
		request.Header.Set("Authorization", e.token)
	}
	return request, nil
}

func (e *etcd) authenticate(ctx context.Context, name, password string) (err error) {
	e.token = ""
	request, err := e.message(ctx, "/v3/auth/authenticate", map[string]string{"name": name, "password": password})
	if err != nil {
		return err
	}
	var answer struct {
		Token string `json:"token"`
	}
	err = e.callJSON(request, maxNotice, &answer)
	e.token = answer.Token
	return err
}
