package fiberlimit_test

import (
	"fmt"
	"net/http/httptest"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/recover"

	"github.com/weirproject/weir/contrib/fiberlimit"
	"github.com/weirproject/weir/internal/adapt/adapttest"
)

func Example() {
	item := func(c fiber.Ctx) error { return c.SendString("item " + c.Params("id")) }
	limited := adapttest.Limited()

	app := fiber.New(fiber.Config{CaseSensitive: true, StrictRouting: true})
	app.Use(recover.New())
	app.Get("/items/:id", fiberlimit.Wrap(limited), item)

	for _, path := range []string{"/items/1", "/items/2"} {
		response, err := app.Test(httptest.NewRequest("GET", path, nil))
		if err != nil {
			fmt.Println(err)
			return
		}
		response.Body.Close()
		fmt.Println(path, response.StatusCode)
	}
	// Output:
	// /items/1 200
	// /items/2 429
}
