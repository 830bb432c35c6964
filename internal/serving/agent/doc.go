// SPDX-License-Identifier: Apache-2.0

// Package agent is the program that stands beside a model server in its pod: it takes requests before the server does,
// tells a receiver of them (package logger), puts predictions together (package batcher), and keeps the models of a server
// that holds many (package puller). Each is there only when it is asked for.
//
// Flags, variables, ports and answers are those of the agent that InferenceServices have had all along, so that either can
// be in a pod. It knows no Kubernetes and decides nothing about the model: what it does not do with a request, it hands on as
// it came, whatever is spoken over HTTP/1.1 or HTTP/2.
package agent
