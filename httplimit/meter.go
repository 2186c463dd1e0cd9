package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A meter is a ResponseWriter that knows what was written. There is one only where a cost
// after the response asks for it. What is written to a hijacked connection is not seen.
type meter struct {
	http.ResponseWriter
	bodiless bool // HEAD: what handlers write is not sent
	status   int
	bytes    int64
}

// Unwrap is for http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *meter) WriteHeader(status int) {
	if m.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		m.status = status
	}
	m.ResponseWriter.WriteHeader(status)
}

func (m *meter) Write(b []byte) (int, error) {
	n, err := m.ResponseWriter.Write(b)
	m.wrote(int64(n))
	return n, err
}

// ReadFrom keeps what net/http does with files: the kernel copies them.
func (m *meter) ReadFrom(r io.Reader) (n int64, err error) {
	n, err = io.Copy(m.ResponseWriter, r)
	m.wrote(n)
	return n, err
}

func (m *meter) wrote(n int64) {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	if !m.bodiless {
		m.bytes += n
	}
}

// Flush, FlushError and Hijack are for those who ask for them by type. Where they are not
// supported Flush does nothing, and the others say so.
func (m *meter) Flush() { m.FlushError() }

func (m *meter) FlushError() error {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	return http.NewResponseController(m.ResponseWriter).Flush()
}

func (m *meter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(m.ResponseWriter).Hijack()
	if err == nil && m.status == 0 {
		m.status = http.StatusSwitchingProtocols
	}
	return conn, buffer, err
}
