package urlsource

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// An apollo is one namespace of Apollo that is a whole text, such as weir.yaml. Its config service is watched by the
// long poll of notifications: https://www.apolloconfig.com/#/en/client/other-language-client-user-guide.
type apollo struct {
	*Source
	app, cluster, namespace string
	notice                  int64           // id of the last notification; -1 before the first
	messages                json.RawMessage // of that notification: a config service compares its cache with them
}

func (s *Source) newApollo(path []string) (center, error) {
	if err := s.parts(path, "apollo+https://HOST:PORT/APP_ID/CLUSTER/NAMESPACE"); err != nil {
		return nil, err
	}
	return &apollo{Source: s, app: path[0], cluster: path[1], namespace: path[2], notice: -1}, nil
}

func (a *apollo) read(ctx context.Context) ([]byte, error) {
	query := url.Values{}
	if a.messages != nil {
		query.Set("messages", string(a.messages))
	}
	path := "/configs/" + a.app + "/" + a.cluster + "/" + a.namespace
	body, err := a.get(ctx, path, query, maxAnswer)
	if errors.Is(err, statusError(http.StatusNotFound)) {
		return nil, fmt.Errorf("the namespace does not exist, or was never released: %w", err)
	}
	if err != nil {
		return nil, err
	}
	var answer struct {
		Configurations map[string]string `json:"configurations"`
	}
	if err := decode(body, &answer); err != nil {
		return nil, err
	}
	text, found := answer.Configurations["content"]
	if !found {
		return nil, errors.New("the namespace has no content: it must be one of the format yaml, such as weir.yaml")
	}
	return []byte(text), nil
}

func (a *apollo) await(ctx context.Context) error {
	known, err := json.Marshal([]map[string]any{{"namespaceName": a.namespace, "notificationId": a.notice}})
	if err != nil {
		return err
	}
	query := url.Values{"appId": {a.app}, "cluster": {a.cluster}, "notifications": {string(known)}}
	body, err := a.get(ctx, "/notifications/v2", query, maxNotice)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	var list []struct {
		NotificationID int64           `json:"notificationId"`
		Messages       json.RawMessage `json:"messages"`
	}
	if err := decode(body, &list); err != nil {
		return err
	}
	for _, n := range list {
		a.notice, a.messages = n.NotificationID, n.Messages
	}
	return nil
}

// get sends a request, signed if there is an access key.
func (a *apollo) get(ctx context.Context, path string, query url.Values, limit int64) ([]byte, error) {
	request, err := a.ask(ctx, http.MethodGet, path, query, nil)
	if err != nil {
		return nil, err
	}
	secret, err := a.secret()
	if err != nil {
		return nil, err
	}
	if secret != "" {
		at := strconv.FormatInt(time.Now().UnixMilli(), 10)
		sum := hmac.New(sha1.New, []byte(secret))
		fmt.Fprintf(sum, "%s\n%s", at, request.URL.RequestURI())
		request.Header.Set("Timestamp", at)
		request.Header.Set("Authorization", "Apollo "+a.app+":"+base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	}
	_, body, err := a.call(request, limit)
	return body, err
}
