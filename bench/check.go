package main

import "fmt"

// check opens a row and sees whether it limits: it must grant a key its burst, refuse the
// next three, and grant another key that was not asked before. It does so for the burst of
// one too, which is what refusals are measured with.
func check(r row) error {
	for _, q := range []Quota{handful, single} {
		if err := checkQuota(r, q); err != nil {
			return fmt.Errorf("a burst of %d: %w", q.Burst, err)
		}
	}
	return nil
}

func checkQuota(r row, q Quota) error {
	p, err := r.open(q)
	if err != nil {
		return err
	}
	defer p.Close()
	ask := p.Asker()
	if r.floor {
		return checkFloor(ask)
	}
	for _, ordinal := range []string{"first", "second"} {
		key := fmt.Sprintf("check-%s-%d-%s", ordinal, q.Burst, r.name)
		if err := checkKey(ask, key, q.Burst, r.slack); err != nil {
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

func checkKey(ask Asker, key string, burst, slack int64) error {
	granted := int64(0)
	for asked := range burst + 3 {
		ok, err := ask(key)
		if err != nil {
			return fmt.Errorf("question %d: %w", asked+1, err)
		}
		if ok {
			granted++
		}
		if (asked < burst) != ok && slack == 0 {
			return fmt.Errorf("question %d: granted is %v", asked+1, ok)
		}
	}
	if granted < burst || granted > burst+slack {
		return fmt.Errorf("granted %d", granted)
	}
	return nil
}
