package pathform_test

import (
	"fmt"
	"net/url"

	"github.com/weirproject/weir/pathform"
)

func Example() {
	var form pathform.Form
	for _, target := range []string{"/login", "//x/../%6Cogin?next=/", "/x%2f..%2flogin"} {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			panic(err)
		}
		path, err := form.Apply(u)
		if err != nil {
			fmt.Println(err) // answer 400 Bad Request
			continue
		}
		fmt.Println("match", path, "forward", u.RequestURI())
	}
	// Output:
	// match /login forward /login
	// match /login forward /login?next=/
	// weir: path is "/x%2f..%2flogin"; allowed: a path without encoded slashes (%2F)
}

func ExampleForm_Path() {
	form := pathform.Form{DropTrailingSlash: true}
	path, err := form.Path("/a//./b/c/../%7euser/")
	fmt.Println(path, err)
	// Output: /a/b/~user <nil>
}
