package web

import (
	"net/http"
	"strings"
)

// A Response is one that a handler writes, as plain data. It is an http.ResponseWriter.
type Response struct {
	Status  int               `json:"status" min:"200" doc:"200: add the headers to the service's own response."`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body" doc:"Empty if the request passes."`
	fields  http.Header
}

// NewResponse is a response with status 200.
func NewResponse() *Response { return &Response{Status: http.StatusOK, fields: make(http.Header)} }

// Header implements http.ResponseWriter.
func (r *Response) Header() http.Header { return r.fields }

// WriteHeader implements http.ResponseWriter.
func (r *Response) WriteHeader(status int) { r.Status = status }

// Write implements http.ResponseWriter.
func (r *Response) Write(text []byte) (int, error) {
	r.Body += string(text)
	return len(text), nil
}

// End takes the fields of the header, after the last write.
func (r *Response) End() {
	r.Headers = make(map[string]string, len(r.fields))
	for name, values := range r.fields {
		r.Headers[name] = strings.Join(values, ", ")
	}
}
