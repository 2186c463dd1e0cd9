package main

var (
	crowds = []int{1, 16, 128, 512}
	// crowd is the number of goroutines that the bars are about.
	crowd = 128
)

const tenThousand = 10_000

// redisRows are all rows of the table of Redis decisions.
func redisRows(s *server) []row {
	rows := []row{weirRedisRow(s), weirGoRedisRow(s), redisRateRow(s), redisRatePipelinedRow(s), rueidisLimiterRow(s)}
	rows = append(rows, goZeroRows(s)...)
	return append(rows, rawRows(s)...)
}

// overRedis measures decisions in Redis.
func overRedis(st *stage, s *server, rows []row) error {
	for _, keys := range []int{tenThousand, 1} {
		for _, refused := range []bool{false, true} {
			if err := playRedis(st, s, rows, keys, refused, crowds); err != nil {
				return err
			}
		}
	}
	return nil
}

// overThree measures three limits of one request.
func overThree(st *stage, s *server, rows []row) error {
	for _, refused := range []bool{false, true} {
		if err := playRedis(st, s, rows, tenThousand, refused, []int{crowd}); err != nil {
			return err
		}
	}
	return nil
}

func playRedis(st *stage, s *server, rows []row, keys int, refused bool, goroutines []int) error {
	if refused {
		rows = refusing(rows)
	}
	if err := s.flush(); err != nil {
		return err
	}
	st.play(scene{rows, newNames("", keys), shuffledNames("", keys), refused, goroutines, enterTogether})
	return s.flush()
}

func refusing(rows []row) []row {
	var some []row
	for _, r := range rows {
		if r.refuses {
			some = append(some, r)
		}
	}
	return some
}

func enterTogether(p Peer, names *names) error { return entered(pass(p, names, fillers)) }
