// Package servicekind knows how kinds of services read what clients send: which paths are one path to them, and which
// names and cookies. A limiter that reads more sharply is evaded, one that reads less sharply refuses honest requests.
package servicekind

import "slices"

// A Kind is how services of one kind read requests.
type Kind struct {
	Name string
	// Form is the form of their paths, in words of path_form; empty: it depends on the service.
	Form []string

	Underscores bool // names: blanks before are dropped, NUL ends them, dots, blanks and brackets are underscores
	Folds       bool // names are read without case
	Lists       bool // name[] and name[a] are name
	Splits      bool // a blank or a comma ends a cookie, and begins the next
}

// Any stands for an unknown service: names and cookies are read as some service reads them.
var Any = Kind{Underscores: true, Folds: true, Lists: true, Splits: true}

// kinds is the only list of them. PHP: php_register_variable. Python: http.cookies, which Flask's predecessors, Bottle
// and web.py use. ASP.NET Core: QueryCollection and RequestCookieCollection compare without case, its parser of cookies
// splits at commas, its model binding reads lists, and its routing ignores case and a final slash. Node: Express's
// routing does, and qs reads lists. Containers of servlets split some cookies at commas.
var kinds = []Kind{
	{Name: "php", Underscores: true, Lists: true},
	{Name: "python", Form: []string{"strict"}, Splits: true},
	{Name: "servlet", Splits: true},
	{Name: "aspnet", Form: []string{"drop-trailing-slash", "ignore-case"}, Folds: true, Lists: true, Splits: true},
	{Name: "node", Form: []string{"drop-trailing-slash", "ignore-case"}, Lists: true},
	{Name: "go", Form: []string{"strict"}},
}

// Names are the names of all kinds, after "", which is Any.
func Names() []string {
	list := []string{""}
	for _, k := range kinds {
		list = append(list, k.Name)
	}
	return list
}

// Of returns the kind with a name, or Any.
func Of(name string) Kind {
	if i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return kinds[i]
	}
	return Any
}
