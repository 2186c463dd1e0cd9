package main

import "fmt"

// check opens a row and sees whether it limits: it must grant a key its burst, refuse the
// next three, and grant another key that was not asked before.
func check(r row) error {
	p, err := r.open(handful)
	if err != nil {
		return err
	}
	defer p.Close()
	ask := p.Asker()
	if r.floor {
		return checkFloor(ask)
	}
	for _, key := range []string{"check-first-" + r.name, "check-second-" + r.name} {
		if err := checkKey(ask, key, r.slack); err != nil {
			return err
		}
	}
	return nil
}

func checkFloor(ask Asker) error {
	for range 3 {
		if granted, err := ask("check"); err != nil || !granted {
			return fmt.Errorf("a floor must grant; it said %v, %v", granted, err)
		}
	}
	return nil
}

func checkKey(ask Asker, key string, slack int64) error {
	granted := int64(0)
	for asked := range handful.Burst + 3 {
		ok, err := ask(key)
		if err != nil {
			return fmt.Errorf("question %d: %w", asked+1, err)
		}
		if ok {
			granted++
		}
		if (asked < handful.Burst) != ok && slack == 0 {
			return fmt.Errorf("question %d of a burst of %d: granted is %v", asked+1, handful.Burst, ok)
		}
	}
	if granted < handful.Burst || granted > handful.Burst+slack {
		return fmt.Errorf("granted %d of a burst of %d", granted, handful.Burst)
	}
	return nil
}
