// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
)

// The plot in pixels.
const (
	plotWidth, plotHeight    = 900, 420
	plotLeft, plotRight      = 70, 30
	plotTop, plotBottom      = 50, 60
	plotAcross, plotUp       = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	colourReady, colourFloor = "#1f6feb", "#8c959f"
)

// plot draws how many services were ready over time, and beside it how many
// had all their children when a plain client created these.
func (r *report) plot(w io.Writer) error {
	end := r.Make.Seconds
	if r.Floor != nil {
		end = max(end, r.Floor.Seconds)
	}
	p := &picture{end: max(end, 1), most: float64(r.Services)}
	p.frame(fmt.Sprintf("%d InferenceServices, %d cores", r.Services, r.Cores))
	p.line(r.Ready, colourReady)
	p.legend(0, colourReady, fmt.Sprintf("ready (all after %.1f s)", r.Make.Seconds))
	if r.Floor != nil {
		p.line(r.Floor.Made, colourFloor)
		p.legend(1, colourFloor, fmt.Sprintf("children created by a plain client (all after %.1f s)", r.Floor.Seconds))
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, plotWidth, plotHeight, p.String())
	return err
}

type picture struct {
	strings.Builder
	end, most float64
}

func (p *picture) x(seconds float64) float64 { return plotLeft + seconds/p.end*plotAcross }
func (p *picture) y(count float64) float64   { return plotTop + (1-count/p.most)*plotUp }

func (p *picture) frame(title string) {
	fmt.Fprintf(p, `<text x="%d" y="26" font-size="16">%s</text>`+"\n", plotLeft, title)
	for s := 0.0; s <= p.end; s += step(p.end) {
		fmt.Fprintf(p, `<path d="M%.1f %dV%d" stroke="#d0d7de"/><text x="%.1f" y="%d" text-anchor="middle">%g s</text>`+"\n",
			p.x(s), plotTop, plotTop+plotUp, p.x(s), plotTop+plotUp+20, s)
	}
	for n := 0.0; n <= p.most; n += step(p.most) {
		fmt.Fprintf(p, `<path d="M%d %.1fH%d" stroke="#d0d7de"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
			plotLeft, p.y(n), plotLeft+plotAcross, plotLeft-8, p.y(n)+4, n)
	}
}

// step between the lines of the grid: 1, 2 or 5 of a power of ten, so that there
// are four to ten of them.
func step(most float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, part := range []float64{0.1, 0.2, 0.5} {
		if most/(power*part) <= 10 {
			return power * part
		}
	}
	return power
}

// line goes up by one at each of the sorted times.
func (p *picture) line(at []float64, colour string) {
	fmt.Fprintf(p, `<path fill="none" stroke-width="2" stroke="%s" d="M%.1f %.1f`, colour, p.x(0), p.y(0))
	for i, s := range at {
		fmt.Fprintf(p, "H%.1fV%.1f", p.x(s), p.y(float64(i+1)))
	}
	fmt.Fprint(p, `"/>`+"\n")
}

func (p *picture) legend(row int, colour, text string) {
	const wide = 330
	x, y := plotLeft+row*(wide-100), plotHeight-14
	fmt.Fprintf(p, `<rect x="%d" y="%d" width="14" height="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n", x, y-6, colour, x+20, y, text)
}
