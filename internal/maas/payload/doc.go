// SPDX-License-Identifier: Apache-2.0

// Package payload is the payload processor: a server of Envoy's external processing that looks at requests for models and at
// their answers on their way through a gateway. It speaks the protocol, keeps what must be kept within bounds, and sends
// everything through the plugins of its configuration; what is done with a request is theirs to say.
//
// A request is held until its body is complete, because everything depends on the model that the body names. An answer is
// never held unless it has to be translated as a whole: a stream leaves event by event as it comes. Whatever fails, fails
// the request: nothing goes on that a plugin has not seen.
package payload
