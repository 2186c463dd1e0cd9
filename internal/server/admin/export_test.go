package admin

// Document is the description in OpenAPI.
func Document() []byte { return document }
