//go:build dist

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// chart is what testdata/chart.py finds out.
type chart struct {
	Lint     struct{ Messages, Errors []any }
	Rendered []struct {
		Error     string
		Documents []struct {
			Kind string
			Spec map[string]any
			Data map[string]string
		}
	}
}

func TestChart(t *testing.T) {
	command := exec.Command("python3", "testdata/chart.py", "../helm/weir", `{}`,
		`{"existingSecret": "s", "store": "redis://r:6379", "gateway": {"enabled": true, "upstream": "http://shop:3000"},
		  "grpc": {"enabled": true}, "resp": {"enabled": true}, "autoscaling": {"enabled": true}, "serviceMonitor": {"enabled": true},
		  "networkPolicy": {"enabled": true, "from": [{"podSelector": {}}]}, "config": {"rules": [{"name": "a", "limit": "5/1m"}]}}`,
		`{"replica": 1}`, `{"grpc": {"enabled": true}}`, `{"store": "redis://user:secret@r"}`)
	command.Env = append(os.Environ(), "PYTHONPATH="+os.Getenv("WEIR_CHART_TOOLS"))
	said, err := command.Output()
	if exit, ok := err.(*exec.ExitError); ok {
		t.Fatalf("%v\n%s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatal(err)
	}
	var c chart
	if err := json.Unmarshal(said, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Lint.Messages)+len(c.Lint.Errors) > 0 {
		t.Errorf("lint: %+v", c.Lint)
	}
	for i, want := range []string{"ConfigMap Deployment PodDisruptionBudget Service ServiceAccount",
		"ConfigMap Deployment HorizontalPodAutoscaler NetworkPolicy PodDisruptionBudget Service ServiceAccount ServiceMonitor"} {
		var kinds []string
		for _, d := range c.Rendered[i].Documents {
			kinds = append(kinds, d.Kind)
		}
		if got := strings.Join(kinds, " "); got != want || c.Rendered[i].Error != "" {
			t.Errorf("values %d: %s %s, want %s", i, got, c.Rendered[i].Error, want)
		}
	}
	for i, want := range map[int]string{2: "additional properties 'replica' not allowed", 3: "need existingSecret", 4: "/store"} {
		if !strings.Contains(c.Rendered[i].Error, want) {
			t.Errorf("values %d: %q, want %q", i, c.Rendered[i].Error, want)
		}
	}
	for i := range 2 {
		t.Run(fmt.Sprint(i), func(t *testing.T) { c.runs(t, i) })
	}
}

// runs starts the program as the pod would, on ports of this machine: the variables of the chart are those of weir.
func (c *chart) runs(t *testing.T, i int) {
	var env []string
	rules := t.TempDir() + "/weir.yaml"
	for _, d := range c.Rendered[i].Documents {
		switch d.Kind {
		case "ConfigMap":
			if err := os.WriteFile(rules, []byte(d.Data["weir.yaml"]), 0o600); err != nil {
				t.Fatal(err)
			}
		case "Deployment":
			env = variables(t, d.Spec)
		}
	}
	server := start(t, exec.Command(distributed(t)+"/weir", "serve"), append(env, "WEIR_CONFIG="+rules)...)
	if said := server.log(); strings.Contains(said, "unknown") || strings.Contains(said, "level=ERROR") {
		t.Errorf("weir says\n%s", said)
	}
}

// variables are those of the container, with free ports, a secret and counts in memory.
func variables(t *testing.T, spec map[string]any) (env []string) {
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	var pod struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Env []struct{ Name, Value string }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &pod); err != nil {
		t.Fatal(err)
	}
	for _, v := range pod.Template.Spec.Containers[0].Env {
		host, _, isAddress := strings.Cut(v.Value, ":")
		switch {
		case v.Name == "WEIR_STORE" || v.Name == "WEIR_CONFIG":
			continue
		case isAddress && (host == "0.0.0.0" || host == "127.0.0.1"):
			v.Value = host + ":0"
			if v.Name == "WEIR_METRICS" {
				v.Value = "127.0.0.1:" + port(t)
			}
		case v.Value == "":
			v.Value = "a-secret-of-this-test-" + v.Name
		}
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}
