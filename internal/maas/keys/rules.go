// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what people may say of a key.
const (
	maxName        = 128  // runes
	maxDescription = 1024 // runes
	maxLabels      = 50
	maxLabelKey    = 128
	maxLabelValue  = 1024

	// EphemeralLifetime is the longest and the usual life of an ephemeral key.
	EphemeralLifetime = time.Hour
	day               = 24 * time.Hour
)

// Name trims and checks the name of a key.
func Name(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", errors.New("name is required; say what the key is for")
	case !utf8.ValidString(name):
		return "", errors.New("name is not valid UTF-8")
	case utf8.RuneCountInString(name) > maxName:
		return "", fmt.Errorf("name is longer than %d characters", maxName)
	case hasControl(name):
		return "", errors.New("name must not contain control characters")
	}
	return name, nil
}

// Description is free text; only its length and what a terminal would obey are refused.
func Description(text string) error {
	switch {
	case !utf8.ValidString(text):
		return errors.New("description is not valid UTF-8")
	case utf8.RuneCountInString(text) > maxDescription:
		return fmt.Errorf("description is longer than %d characters", maxDescription)
	case hasControl(strings.NewReplacer("\n", "", "\r", "", "\t", "").Replace(text)):
		return errors.New("description must not contain control characters other than line ends and tabs")
	}
	return nil
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

// labelKey is the form of Kubernetes: a name, and before it a DNS name and a slash if one wants.
var labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)

// Labels checks what somebody wants to find a key by. Messages name the key, which is a word of the client's own.
func Labels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("there are %d labels; at most %d are kept", len(labels), maxLabels)
	}
	for key, value := range labels {
		switch {
		case len(key) > maxLabelKey:
			return fmt.Errorf("a label key has more than %d characters", maxLabelKey)
		case !labelKey.MatchString(key):
			return fmt.Errorf("label key %q must be letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, after an optional DNS name and '/'", key)
		case value == "":
			return fmt.Errorf("the value of label %q is empty", key)
		case !utf8.ValidString(value) || utf8.RuneCountInString(value) > maxLabelValue:
			return fmt.Errorf("the value of label %q is longer than %d characters or no UTF-8", key, maxLabelValue)
		case hasControl(value):
			return fmt.Errorf("the value of label %q must not contain control characters", key)
		}
	}
	return nil
}

// group is what the gateway lets through, slashes of full paths included.
var group = regexp.MustCompile(`^[A-Za-z0-9:._/-]+$`)

// Groups checks the groups that a key takes along.
func Groups(groups []string) error {
	for _, g := range groups {
		if !group.MatchString(g) {
			return fmt.Errorf("group %q cannot be kept in a key; use a group of letters, digits, and ':._/-'", g)
		}
	}
	return nil
}

// ParseExpiresIn understands how long a key should live: a text such as "12h" or "30d", or a number of seconds. Nothing,
// null or an empty text is ok false: the client leaves it to the server.
func ParseExpiresIn(raw json.RawMessage) (d time.Duration, ok bool, err error) {
	text := strings.TrimSpace(string(raw))
	if text == "" || text == "null" {
		return 0, false, nil
	}
	if text[0] != '"' {
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, false, errors.New(`expiresIn must be a duration such as "12h" or "30d", or a number of seconds`)
		}
		return scaled(seconds, time.Second)
	}
	if err := json.Unmarshal(raw, &text); err != nil {
		return 0, false, errors.New(`expiresIn must be a duration such as "12h" or "30d", or a number of seconds`)
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, false, nil
	}
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseFloat(days, 64)
		if err != nil {
			return 0, false, fmt.Errorf("expiresIn %.40q is no number of days", text)
		}
		return scaled(n, day)
	}
	d, err = time.ParseDuration(text)
	if err != nil {
		return 0, false, fmt.Errorf(`expiresIn %.40q is no duration; use for example "12h" or "30d"`, text)
	}
	return d, true, nil
}

// scaled refuses what no duration can hold.
func scaled(n float64, unit time.Duration) (time.Duration, bool, error) {
	v := n * float64(unit)
	if math.IsNaN(v) || math.Abs(v) >= math.MaxInt64 {
		return 0, false, errors.New("expiresIn is out of range")
	}
	return time.Duration(v), true, nil
}

// Lifetime is how long a key lives: what the client wants if that is permitted, else as long as it may.
func Lifetime(want time.Duration, wanted, ephemeral bool, maxDays int) (time.Duration, error) {
	longest, words := time.Duration(maxDays)*day, fmt.Sprintf("%d days", maxDays)
	if ephemeral {
		longest, words = EphemeralLifetime, "1 hour for ephemeral keys"
	}
	switch {
	case !wanted:
		return longest, nil
	case want <= 0:
		return 0, errors.New("expiresIn must be positive")
	case want > longest:
		return 0, fmt.Errorf("expiresIn is longer than the maximum of %s", words)
	}
	return want, nil
}
