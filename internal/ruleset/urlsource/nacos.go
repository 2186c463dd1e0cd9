package urlsource

import (
	"context"
	"crypto/md5" // the version of a text is its MD5 in Nacos
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirproject/weir/rules"
)

// A nacos is one configuration of Nacos, which is watched by the long poll of its open API:
// https://nacos.io/docs/v2/guide/user/open-api.
type nacos struct {
	*Source
	group, id, namespace string
	sum                  string // MD5 of the text read last
	token                string // of the last login
}

func (s *Source) newNacos(path []string) (center, error) {
	if err := s.parts(path, "nacos+https://HOST:PORT/GROUP/DATA_ID?namespace=ID", "namespace"); err != nil {
		return nil, err
	}
	return &nacos{Source: s, group: path[0], id: path[1], namespace: s.url.Query().Get("namespace")}, nil
}

func (n *nacos) read(ctx context.Context) ([]byte, error) {
	query := url.Values{"dataId": {n.id}, "group": {n.group}}
	if n.namespace != "" {
		query.Set("tenant", n.namespace)
	}
	text, err := n.call(ctx, http.MethodGet, "/nacos/v1/cs/configs", query, nil, rules.MaxFile+1)
	if errors.Is(err, statusError(http.StatusNotFound)) {
		return nil, fmt.Errorf("the configuration does not exist: %w", err)
	}
	if err != nil {
		return nil, err
	}
	sum := md5.Sum(text)
	n.sum = hex.EncodeToString(sum[:])
	return text, nil
}

// await sends the version that is known. Fields end with the byte 2, and the list with the byte 1. The answer is empty
// when the time is over.
func (n *nacos) await(ctx context.Context) error {
	known := n.id + "\x02" + n.group + "\x02" + n.sum
	if n.namespace != "" {
		known += "\x02" + n.namespace
	}
	form := url.Values{"Listening-Configs": {known + "\x01"}}
	_, err := n.call(ctx, http.MethodPost, "/nacos/v1/cs/configs/listener", nil, form, maxNotice)
	return err
}

// call sends a request with the token of a login, which is a parameter.
func (n *nacos) call(ctx context.Context, method, path string, query, form url.Values, limit int64) ([]byte, error) {
	response, err := n.authorized(ctx, n.authenticate, func() (*http.Request, error) {
		all := url.Values{}
		maps.Copy(all, query)
		if n.token != "" {
			all.Set("accessToken", n.token)
		}
		request, err := n.ask(ctx, method, path, all, []byte(form.Encode()))
		if err == nil && form != nil {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			request.Header.Set("Long-Pulling-Timeout", strconv.FormatInt(longPoll.Milliseconds(), 10))
		}
		return request, err
	})
	if err != nil {
		return nil, err
	}
	return readAll(response, limit)
}

func (n *nacos) authenticate(ctx context.Context, name, password string) error {
	form := url.Values{"username": {name}, "password": {password}}
	request, err := n.ask(ctx, http.MethodPost, "/nacos/v1/auth/login", nil, []byte(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var answer struct{ AccessToken string }
	err = n.callJSON(request, maxNotice, &answer)
	n.token = answer.AccessToken
	return err
}
