// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func text(s string) Value { return Value{Type: String, String: s} }

func whole(n int64) Value { return Value{Type: Int, Int: n} }

func double(f float64) Value { return Value{Type: Double, Double: f} }

func compares(name string, op Op, values ...Value) Compare {
	return Compare{Property: Property{Name: name}, Op: op, Values: values}
}

func TestParse(t *testing.T) {
	typed := compares("accuracy", GreaterEqual, whole(1))
	typed.Property.Type = Double
	quoted := compares("my prop", Equal, text("x"))
	quoted.Property.Quoted = true
	quotedTyped := compares("a.string_value", Equal, text("x"))
	quotedTyped.Property = Property{Name: "a.string_value", Type: String, Quoted: true}
	for query, want := range map[string]Expr{
		"":                                  nil,
		"  -- nothing at all\n":             nil,
		"name = 'bert'":                     compares("name", Equal, text("bert")),
		"name = \"it's\"":                   compares("name", Equal, text("it's")),
		`name = 'it\'s'`:                    compares("name", Equal, text("it's")),
		"name = 'it''s'":                    compares("name", Equal, text("it's")),
		`name = 'a\\b\tc'`:                  compares("name", Equal, text("a\\b\tc")),
		"name<>'a'":                         compares("name", NotEqual, text("a")),
		"id != 3":                           compares("id", NotEqual, whole(3)),
		"step <= -7":                        compares("step", LessEqual, whole(-7)),
		"loss < 1.5e-3":                     compares("loss", Less, double(0.0015)),
		"big = 9223372036854775808":         compares("big", Equal, double(9223372036854775808)),
		"hf_gated = TRUE":                   compares("hf_gated", Equal, Value{Type: Bool, Bool: true}),
		"name like 'b%'":                    compares("name", Like, text("b%")),
		`name LIKE '100\%\\'`:               compares("name", Like, text(`100\%\\`)),
		`name = '100\%\\'`:                  compares("name", Equal, text(`100%\`)),
		"name iLike 'B_'":                   compares("name", ILike, text("B_")),
		"id IN (1, 2,3)":                    compares("id", In, whole(1), whole(2), whole(3)),
		"accuracy.double_value >= 1":        typed,
		"`my prop` = 'x'":                   quoted,
		"`a.string_value`.string_value='x'": quotedTyped,
		"a.b.c = 'x'":                       compares("a.b.c", Equal, text("x")),
		"a = 1 AND b = 2 OR c = 3": Or{[]Expr{
			And{[]Expr{compares("a", Equal, whole(1)), compares("b", Equal, whole(2))}}, compares("c", Equal, whole(3))}},
		"a = 1 and (b = 2 or c = 3)": And{[]Expr{
			compares("a", Equal, whole(1)), Or{[]Expr{compares("b", Equal, whole(2)), compares("c", Equal, whole(3))}}}},
		"((a = 1))": compares("a", Equal, whole(1)),
		"a = 1 -- one\nAND b = 2": And{[]Expr{
			compares("a", Equal, whole(1)), compares("b", Equal, whole(2))}},
	} {
		got, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", query, diff)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for query, want := range map[string]string{
		"name":                                  "at character 5: the end is not expected here; an operator",
		"name =":                                "at character 7: the end is not expected here; a value",
		"name = bert":                           `at character 8: "bert" is no value; text is written in quotes`,
		"= 3":                                   `at character 1: "=" is not expected here; the name of a property`,
		"a = 1 b = 2":                           `at character 7: "b" is not expected here; AND, OR or the end`,
		"a = 1 AND":                             "the end is not expected here; the name of a property",
		"(a = 1":                                "the end is not expected here; ) is",
		"a = 'x":                                "at character 5: there is no ' that ends what begins here",
		"`` = 1":                                "no name between the backticks",
		"a # 1":                                 "'#' has no meaning here",
		"a IN 1":                                `"1" is not expected here; ( is`,
		"a IN (1, 'x')":                         "of one type",
		"a LIKE 3":                              "LIKE compares with text",
		"a < true":                              "have no order",
		"a.int_value = 1.5":                     "a number with a fraction is not a value for int_value",
		"a.double_value = 'x'":                  "text is not a value for double_value",
		"and = 1":                               "a word of the language",
		"1a = 1":                                "begins like a number",
		"a = 1e999":                             "too large for a number",
		"a = 1.2.3":                             "is not a number",
		"a = 'x\x00'":                           "no text between the quotes",
		"a. = 1":                                "the rest of the name",
		strings.Repeat("(", 100):                "nested more than 64 deep",
		strings.Repeat("a=1 or ", 300) + " b=1": "more than 256 comparisons",
		"a = '" + strings.Repeat("x", 1<<15):    "more than 16384 bytes",
		"a IN (" + strings.Repeat("1,", 2000):   "more than 1024 values",
	} {
		_, err := Parse(query)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %q", query, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	entity := map[string][]Value{
		"name": {text("bert-base")}, "owner": {text("Ada's")}, "steps": {whole(3)}, "loss": {double(0.5)},
		"gated": {{Type: Bool}}, "both": {whole(1), text("x")},
	}
	values := func(p Property) []Value { return entity[p.Name] }
	for query, want := range map[string]bool{
		"":                                  true,
		"name = 'bert-base'":                true,
		"name = 'BERT-base'":                false,
		"name != 'x'":                       true,
		"absent != 'x'":                     false,
		"absent = 'x' OR steps = 3":         true,
		"name LIKE 'bert%'":                 true,
		"name LIKE 'bert'":                  false,
		"name LIKE 'b__t-%e'":               true,
		"name LIKE 'BERT%'":                 false,
		"name ILIKE 'BERT%'":                true,
		`name LIKE 'bert\%'`:                false,
		"steps = 3.0":                       true,
		"steps > 2.5":                       true,
		"steps.double_value = 3":            false,
		"steps.int_value = 3":               true,
		"steps = '3'":                       false,
		"loss <= 1":                         true,
		"loss IN (1, 0.5)":                  true,
		"gated = false":                     true,
		"gated != false":                    false,
		"both = 1 AND both = 'x'":           true,
		"name >= 'bert' AND name < 'bert.'": true,
	} {
		e, err := Parse(query)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if got := Match(e, values); got != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
}

func TestPatternsAreWrittenAlike(t *testing.T) {
	for pattern, want := range map[Pattern]string{
		`a%b_c`: `a%b_c`, `100\%`: `100\%`, `a\b`: `ab`, `a\\b`: `a\\b`, `a\`: `a\\`, `\_x`: `\_x`,
	} {
		if got := pattern.Canonical(); got != want {
			t.Errorf("%s is written %s, want %s", pattern, got, want)
		}
	}
}

// FuzzParse: whatever is written, it is read or refused in words, and a pattern means the same when it is written anew.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"name = 'a' AND (b.int_value IN (1,2) OR `c d` LIKE '%x\\_')", "a <> 1e3 -- b", "x ILIKE \"\\\\\"", "((("} {
		f.Add(seed, "some text")
	}
	f.Add(strings.Repeat("0", 200)+"A", "")
	f.Fuzz(func(t *testing.T, query, has string) {
		e, err := Parse(query)
		if err != nil {
			if len(err.Error()) > 300 {
				t.Errorf("%d bytes of words: %v", len(err.Error()), err)
			}
			return
		}
		Match(e, func(p Property) []Value {
			if p.Name == "" {
				t.Errorf("%q names a property without a name", query)
			}
			return []Value{text(has)}
		})
		if p := Pattern(query); p.Matches(has) != Pattern(p.Canonical()).Matches(has) {
			t.Errorf("%q means something else when it is written as %q", query, p.Canonical())
		}
	})
}
