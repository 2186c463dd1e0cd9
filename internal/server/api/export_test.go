package api

// Document is the one that is served.
func Document() []byte { return openAPIDocument }

// Fields are the names that are read, by path and object.
func Fields() map[string]map[string][]string {
	claims := func(path string) []string {
		if path == "/v1/reserve" {
			return append(namesOf(claimFields()), "fixed")
		}
		return namesOf(claimFields())
	}
	all := make(map[string]map[string][]string)
	for path, op := range operations() {
		if op.fields == nil {
			continue
		}
		objects := map[string][]string{"body": namesOf(op.fields)}
		for _, name := range objects["body"] {
			switch name {
			case "request":
				objects[name] = namesOf(requestFields())
			case "claims":
				objects[name] = claims(path)
			case "requests":
				objects[name] = namesOf(op.fields[:len(op.fields)-1])
			}
		}
		all[path] = objects
	}
	return all
}

func namesOf(fields []field) (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}
