package gate

import "github.com/weirproject/weir/rules"

// adoptEndpoints keeps the paths that the previous rules told apart.
func adoptEndpoints(set, before *rules.Set) {
	if before != nil && set.Endpoints() != nil && before.Endpoints() != nil {
		set.Endpoints().Adopt(before.Endpoints())
	}
}

// meet records the path of a request that passed.
func (g *Gate) meet(v *Verdict) {
	if v.path != "" && v.Outcome == Passed && v.Times > 0 {
		v.set.Endpoints().Request(v.path, g.now())
	}
}

// respond records the status of a response to the path of a request.
func (g *Gate) respond(receipt Receipt, status int) {
	if len(receipt) == 0 || receipt[0].path == "" {
		return
	}
	if places := g.Rules().Endpoints(); places != nil {
		places.Response(receipt[0].path, status, g.now())
	}
}
