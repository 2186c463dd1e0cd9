package cli

import "github.com/spf13/pflag"

// secrets are the credentials of callers; "" means none is required.
type secrets struct{ token, readToken, password string }

func (f *serveFlags) readSecrets(s *System, warn func(string)) (read secrets, err error) {
	for _, one := range []struct {
		flag, file string
		value      *string
	}{
		{"token-file", f.tokenFile, &read.token},
		{"read-token-file", f.readTokenFile, &read.readToken},
		{"resp-password-file", f.passwordFile, &read.password},
	} {
		if *one.value, err = s.secret(one.flag, one.file, warn); err != nil {
			return read, err
		}
	}
	return read, nil
}

// knownVariables are the variables of the flags, of the secrets, and of other commands.
func knownVariables(flags *pflag.FlagSet) []string {
	known := []string{"WEIR_TOKEN", "WEIR_READ_TOKEN", "WEIR_ADMIN_TOKEN", "WEIR_ADMIN_READ_TOKEN",
		"WEIR_RESP_PASSWORD", "WEIR_HASH_KEY", "WEIR_ALERT_WEBHOOK", "WEIR_ALERT_SECRET",
		"WEIR_SERVER", "WEIR_SERVER_CA", "WEIR_SERVER_CERT", "WEIR_SERVER_KEY", "WEIR_SERVER_TIMEOUT"}
	for _, name := range flagNames(flags) {
		known = append(known, variable(name))
	}
	return known
}
