package rules

import (
	"strconv"
	"strings"

	"github.com/weirproject/weir"
)

// A modelAPI is what a preset knows of the API of language models: where tokens stand, and the form of its errors.
type modelAPI struct {
	word     string
	most     string // the most tokens of all answers to the request
	settle   string
	count    string // of a stream: a quarter of the bytes of its text
	asks     bool   // a stream states its usage only if the request asks for it
	refusals string
}

// estimated is the cost of an answer if the request does not bound it.
const estimated = 1000

// prompt is the estimate of a prompt: a quarter of the whole body. A sum of its known parts would leave out text that a
// client puts elsewhere, such as into the schema of the answer.
const prompt = "0.25 * bytes(json)"

// modelAPIs follow the references of the APIs. Of several names the largest number counts, since a service ignores
// unknown names. Gemini reads names of both spellings, as ProtoJSON allows. Tokens that Anthropic reads from its cache
// are not counted, as its own limits do not.
var modelAPIs = []modelAPI{
	{"openai", "max(json.n, json.best_of) * max(json.max_completion_tokens, json.max_output_tokens, json.max_tokens) " +
		"or 1000",
		"json.usage.total_tokens or json.response.usage.total_tokens",
		quarters("choices.*.delta.content", "choices.*.delta.reasoning_content or choices.*.delta.reasoning",
			"choices.*.delta.refusal", "choices.*.delta.tool_calls.*.function.arguments",
			"choices.*.delta.function_call.arguments", "choices.*.text", "delta"), true, shapeOpenAI},
	{"anthropic", "json.max_tokens or 1000",
		"json.usage.input_tokens or json.message.usage.input_tokens + " +
			"json.usage.cache_creation_input_tokens or json.message.usage.cache_creation_input_tokens + " +
			"json.usage.output_tokens or json.message.usage.output_tokens",
		quarters("delta.text", "delta.thinking", "delta.partial_json"), false, shapeAnthropic},
	{"gemini", geminiNumber("candidateCount", "candidate_count") + " * " +
		geminiNumber("maxOutputTokens", "max_output_tokens") + " or 1000",
		"json.usageMetadata.totalTokenCount",
		quarters("candidates.*.content.parts.*.text", "candidates.*.content.parts.*.functionCall.args"), false,
		shapeGemini},
	{"ollama", "json.options.num_predict or 1000",
		"json.prompt_eval_count + json.eval_count",
		quarters("message.content", "message.thinking", "message.tool_calls.*.function.arguments", "response",
			"thinking"), false, shapeOllama},
}

// geminiNumber is a number of Gemini's configuration: the largest value under all its names.
func geminiNumber(names ...string) string {
	var paths []string
	for _, config := range []string{"generationConfig", "generation_config"} {
		for _, name := range names {
			paths = append(paths, "json."+config+"."+name)
		}
	}
	return "max(" + strings.Join(paths, ", ") + ")"
}

// quarters is the sum of a quarter of the bytes of each value, which may have several names.
func quarters(paths ...string) string {
	terms := make([]string, len(paths))
	for i, path := range paths {
		terms[i] = "0.25 * bytes(json." + strings.ReplaceAll(path, " or ", ") or bytes(json.") + ")"
	}
	return strings.Join(terms, " + ")
}

// expand sets what the rule leaves open.
func (m *modelAPI) expand(s *Spec) (fields []string) {
	if len(s.Match.Method) == 0 {
		s.Match.Method = []string{"POST"}
		fields = append(fields, "match: {method: POST}")
	}
	if c := &s.Cost; c.Units == 0 && c.From == "" && c.Settle == "" && c.By == "" && !s.leases() {
		if c.From, c.Settle = m.most+" + "+prompt, m.settle; s.Charge == ChargeStreaming {
			c.From = prompt
		}
		if c.Max == 0 {
			c.Max = s.mostOfAll()
		}
		if c.Default == 0 {
			c.Default = min(estimated, c.Max)
		}
		if s.Unit == "" {
			s.Unit = "tokens"
			fields = append(fields, "unit: tokens")
		}
		fields = append(fields, "cost: {from: '"+c.From+"', default: "+strconv.FormatInt(c.Default, 10)+", max: "+
			strconv.FormatInt(c.Max, 10)+", settle: "+c.Settle+"}")
	}
	var stream []string
	if m.asks && s.Stream.AskUsage == nil && s.Cost.Settle == m.settle {
		s.Stream.AskUsage = new(true)
		stream = append(stream, "ask_usage: true")
	}
	if (s.Charge == ChargeStreaming || s.Cost.Settle == m.settle) && s.Stream.Count == "" {
		s.Stream.Count = m.count
		stream = append(stream, "count: "+m.count)
	}
	if len(stream) > 0 {
		fields = append(fields, "stream: {"+strings.Join(stream, ", ")+"}")
	}
	if s.Response.Body == "" && s.Response.Shape == "" {
		s.Response.Shape = m.refusals
		fields = append(fields, "response: {shape: "+m.refusals+"}")
	}
	return fields
}

// leases reports whether a limit of the rule is of requests at a time.
func (s *Spec) leases() bool {
	for _, text := range s.Limit {
		if strings.HasPrefix(strings.TrimSpace(s.Algorithm+" "+text), "concurrency") {
			return true
		}
	}
	return false
}

// maxEstimate is the largest estimate of a preset.
const maxEstimate = 32_768

// mostOfAll is the largest estimate that each limit of the rule can grant to each class.
func (s *Spec) mostOfAll() int64 {
	most := int64(maxEstimate)
	least := new(Class)
	for name := range s.Reserve.Classes {
		share, _ := wholePercent(s.Reserve.Classes[name])
		least.Share = max(least.Share, share)
	}
	texts := s.Limit
	for i := range s.Overrides {
		texts = append(texts[:len(texts):len(texts)], s.Overrides[i].Limit...)
	}
	for _, text := range texts {
		spec, err := weir.ParseLimit(strings.TrimSpace(s.Algorithm + " " + text))
		if err != nil { // Compile reports it
			continue
		}
		if limit, err := weir.NewLimit("limit", spec); err == nil {
			most = min(most, max(1, limit.Most()-least.Floor(limit)))
		}
	}
	return most
}
