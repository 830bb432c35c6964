// SPDX-License-Identifier: Apache-2.0

package cause

import (
	"fmt"
	"regexp"
	"strings"
)

// hint is what to make of what somebody said.
type hint struct {
	// any of these, in lower case, gives it away.
	any []string
	// why and next are said of it.
	why, next string
}

// pulls explain why an image cannot be pulled. The text of the registry itself is left out: it is long, and different in
// the two states between which a kubelet alternates.
var pulls = []hint{
	{[]string{"toomanyrequests", "too many requests", "rate limit"}, "the registry allows no more pulls for now",
		"Wait, or pull with an account or from a mirror that is allowed more."},
	{[]string{"no match for platform", "no matching manifest", "no child with platform"},
		"it is not built for the node's architecture", "Build it for that architecture, or select other nodes."},
	{[]string{"unauthorized", "authentication required", "authorization failed", "denied", "forbidden", "no basic auth"},
		"the registry refuses access, or has no such repository", "Check the name, and the pull secret of the service account."},
	{[]string{"not found", "manifest unknown", "name unknown", "does not exist"}, "the registry does not have it",
		"Correct its name or tag, or push it."},
	{[]string{"x509", "certificate", "tls:", "http response to https"}, "the node does not trust the registry's certificate",
		"Let the nodes trust it, or correct the name of the registry."},
	{[]string{"no such host", "dial tcp", "connection refused", "timeout", "deadline exceeded", "unreachable", ": eof"},
		"the registry cannot be reached from the node", "Check the name of the registry and the node's network."},
	{[]string{"no space left"}, "the node's disk is full", "Make room on the node, or add nodes."},
	{[]string{"signature"}, "its signature is not accepted", "Sign it, or correct the policy of the nodes."},
}

func pullFailure(message string) (why, next string) {
	if h, ok := match(pulls, message); ok {
		return h.why, h.next
	}
	return "the node does not say why", "Check its name, and the pull secret of the service account."
}

// crashes turn last words into a next step.
var crashes = []hint{
	{any: []string{"access denied", "accessdenied", "permission denied", "forbidden", "unauthorized", "not authorized",
		"(403)", "(401)", "invalidaccesskeyid", "signaturedoesnotmatch", "unable to locate credentials", "authentication fail", "invalid credentials",
		"no credentials"},
		next: "Check the credentials it uses and what they permit."},
	{any: []string{"no such file", "not found", "notfound", "does not exist", "doesn't exist", "(404)", "nosuchbucket", "nosuchkey",
		"no such bucket", "no such key", "no model", "not exist"},
		next: "Check that what it looks for exists, and how its path is spelt."},
	{any: []string{"no space left", "disk quota exceeded"}, next: "Give it more ephemeral storage or a larger volume."},
	{any: []string{"cuda out of memory", "out of memory", "memoryerror", "cannot allocate memory", "bad_alloc"},
		next: "Give it more memory, or less to do."},
	{any: []string{"no such host", "name or service not known", "temporary failure in name resolution", "connection refused",
		"could not connect", "timed out", "i/o timeout", "network is unreachable", "max retries exceeded"},
		next: "Check the address it calls, and the network to it."},
	{any: []string{"unrecognized argument", "unknown flag", "unknown shorthand flag", "flag provided but not defined", "unknown option",
		"no such option", "unexpected argument", "invalid option", "unrecognized option"},
		next: "The program does not know this argument. Remove it where it is set; if the platform or the runtime adds it, take an " +
			"image that knows it."},
	{any: []string{"usage:", "usage of ", "invalid value", "invalid argument", "expected one argument", "arguments are required", "required flag"},
		next: "Correct its arguments."},
}

// invalid tells files that are not what they should be from files that are not there. It comes first, since programs
// say much else about such a file.
var invalid = []hint{
	{any: []string{"invalid_protobuf", "protobuf parsing failed", "no valid onnx file", "modelproto does not have a graph"},
		why: "no valid ONNX file"},
	{any: []string{"unpicklingerror", "invalid load key", "pickle data was truncated"},
		why: "no valid pickle file"},
	{any: []string{"invalidheaderdeserialization", "headertoolarge", "safetensorerror"},
		why: "no valid safetensors file"},
}

// advice is how a program ends that says itself what to do.
var advice = regexp.MustCompile(`; (?:or )?(?:add|change|check|correct|create|export|give|let|mount|name|point|put|raise|remove|set|turn|use)\b`)

func advises(said string) bool { return advice.MatchString(said) }

// crashStep is what to do about a container that ended with these words. What it advises itself is not said twice.
func crashStep(container, said string) string {
	log := fmt.Sprintf("See its log with kubectl logs --previous -c %s.", container)
	if advises(said) {
		return log
	}
	if h, ok := match(invalid, said); ok {
		const next = "heck what the storage address points to, and export the model again. "
		if strings.Contains(strings.ToLower(said), strings.ToLower(h.why)) {
			return "C" + next + log
		}
		return "The model is " + h.why + "; c" + next + log
	}
	if h, ok := match(crashes, said); ok {
		return h.next + " " + log
	}
	return log
}

func match(hints []hint, text string) (hint, bool) {
	lower := strings.ToLower(text)
	for _, h := range hints {
		for _, part := range h.any {
			if strings.Contains(lower, part) {
				return h, true
			}
		}
	}
	return hint{}, false
}

// signal says what an exit code above 128 means, where it is well known.
func signal(code int32) string {
	switch code {
	case 126:
		return " (its command cannot be executed)"
	case 127:
		return " (its command was not found)"
	case 134:
		return " (it aborted)"
	case 137:
		return " (killed, mostly after its liveness or startup probe failed)"
	case 139:
		return " (a segmentation fault)"
	case 143:
		return " (asked to stop, mostly after its liveness or startup probe failed)"
	}
	return ""
}
