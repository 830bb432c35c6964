// SPDX-License-Identifier: Apache-2.0

// Package config turns the inferenceservice-config ConfigMap into one typed value.
//
// Every key is read on its own: a key that is missing means its defaults, a key that is wrong keeps the value that held
// before and is reported, and neither ever stops anything else. Nobody outside this package sees JSON, an unparsed
// quantity or a legacy spelling.
//
// A Config that was handed out is shared and must not be changed by anyone. This package must not decide what a setting
// leads to; that is for the rooms that read it.
package config
