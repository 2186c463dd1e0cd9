package ruleimport

import (
	"errors"

	"github.com/weirproject/weir/internal/ratelimitconf"
	"github.com/weirproject/weir/rules"
)

// envoy reads the files of envoyproxy/ratelimit, as weir ratelimit does.
func envoy(j *Job) {
	var configs []*ratelimitconf.Config
	for _, t := range j.Files {
		config, err := ratelimitconf.Parse(t.Name, t.Data)
		if err != nil {
			j.fail(err)
			continue
		}
		configs = append(configs, config)
		for i := range config.Ignored {
			p := &config.Ignored[i]
			j.Lacks(p.File, p.Line, "move it to where it is meant, or delete it", "%s", p.Message)
		}
		j.metrics(t.Name, config.Descriptors)
	}
	file, err := ratelimitconf.Compile(configs, ratelimitconf.Options{})
	if err != nil {
		j.fail(err)
		return
	}
	j.result.Rules = file
}

// metrics lists the descriptors with metrics of their own.
func (j *Job) metrics(file string, list []ratelimitconf.Descriptor) {
	for i := range list {
		d := &list[i]
		if d.DetailedMetric || d.ValueToMetric {
			j.Lacks(file, d.Mark.Line, "nothing: weir counts each rule in weir_decisions_total, and lists keys in "+
				"weir stats; weir ratelimit has these metrics",
				"detailed_metric and value_to_metric change the names of metrics")
		}
		j.metrics(file, d.Descriptors)
	}
}

// fail adds the mistakes of an error.
func (j *Job) fail(err error) {
	var list *rules.Error
	if errors.As(err, &list) {
		j.problems = append(j.problems, list.Problems...)
		return
	}
	j.Wrong("import", 1, "%v", err)
}
