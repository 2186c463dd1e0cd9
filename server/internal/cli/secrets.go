package cli

import "github.com/weirproject/weir/rules"

// secrets are the credentials of callers; "" means that no credential is required.
type secrets struct{ token, readToken, password string }

func (s *System) secretsOf(server *rules.Server, warn func(string)) (read secrets, err error) {
	for _, one := range []struct {
		setting, file string
		value         *string
	}{
		{"server.token_file", server.TokenFile, &read.token},
		{"server.read_token_file", server.ReadTokenFile, &read.readToken},
		{"server.resp.password_file", server.RESPPasswordFile, &read.password},
	} {
		if *one.value, err = s.secret(one.setting, one.file, warn); err != nil {
			return read, err
		}
	}
	return read, nil
}
