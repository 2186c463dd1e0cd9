package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A meter is a ResponseWriter that records status and length of the response. It is used only if a
// cost after the response or count_if needs it. Writes to a hijacked connection are not seen.
type meter struct {
	http.ResponseWriter
	bodiless bool // HEAD: the body is not sent
	served   *served
	head     func() // called once, before the head of the final response is sent; nil: not needed
	read     func(http.Header) io.WriteCloser
	copy     io.WriteCloser // gets what is sent; nil: not needed
	status   int
	bytes    int64
	broken   bool // a write failed
	pace     *paced
	paces    bool // the response is charged by pace
}

// Unwrap supports http.ResponseController.
func (m *meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

func (m *meter) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		m.begin(status)
	}
	m.ResponseWriter.WriteHeader(status)
}

// begin records the status of the final response.
func (m *meter) begin(status int) {
	if m.status != 0 {
		return
	}
	if m.read != nil && !m.bodiless {
		m.copy = m.read(m.Header())
		m.paces = m.pace != nil && m.pace.begins(m, m.Header(), status)
	}
	if m.status = status; m.head != nil {
		m.head()
	}
}

// close ends the copy.
func (m *meter) close() {
	if m.copy != nil {
		m.copy.Close()
	}
}

func (m *meter) Write(b []byte) (int, error) {
	if m.served.cut { // the handler ignores errors of its writes
		return 0, errCut
	}
	m.begin(http.StatusOK)
	paces := m.paces && m.pace.applies(m, b)
	if paces {
		if err := m.pace.pass(m, b); err != nil {
			return 0, err
		}
	}
	n, err := m.ResponseWriter.Write(b)
	if m.broken = m.broken || err != nil; m.copy != nil && !paces {
		m.copy.Write(b[:n])
	}
	m.wrote(int64(n))
	return n, err
}

// passes notes a part of the body that a client has read. An error ends the response: see paced.
func (m *meter) passes(b []byte) error {
	if m.paces && m.pace.applies(m, b) {
		if err := m.pace.pass(m, b); err != nil {
			return err
		}
	} else if m.copy != nil {
		m.copy.Write(b)
	}
	m.wrote(int64(len(b)))
	return nil
}

// ReadFrom keeps net/http's file copies within the kernel.
func (m *meter) ReadFrom(r io.Reader) (n int64, err error) {
	if m.begin(http.StatusOK); m.copy != nil {
		return io.Copy(struct{ io.Writer }{m}, r)
	}
	n, err = io.Copy(m.ResponseWriter, r)
	m.wrote(n)
	return n, err
}

func (m *meter) wrote(n int64) {
	if !m.bodiless {
		m.bytes += n
	}
}

// Flush, FlushError and Hijack support type assertions. If the writer below lacks the feature, Flush has no effect and
// the others return an error.
func (m *meter) Flush() { m.FlushError() }

func (m *meter) FlushError() error {
	m.begin(http.StatusOK)
	return http.NewResponseController(m.ResponseWriter).Flush()
}

func (m *meter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(m.ResponseWriter).Hijack()
	if err == nil {
		m.begin(http.StatusSwitchingProtocols)
	}
	return conn, buffer, err
}
