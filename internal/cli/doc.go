// SPDX-License-Identifier: Apache-2.0

// Package cli is what a person types: commands that read, decide and print. It
// writes to no cluster and knows no domain; the rooms come in from cmd.
package cli
