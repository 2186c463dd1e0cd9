#!/bin/sh
# draw.sh NAME.dot: writes NAME.svg, which follows the reader's light or dark theme and names the source that it was made of.
set -eu
cd "$(dirname "$0")"
for source in "$@"; do
	name=${source%.dot}
	sum=$(sha256sum "$source" | cut -d ' ' -f 1)
	dot -Tsvg -Gbgcolor=transparent -Gfontname=sans-serif -Nfontname=sans-serif -Efontname=sans-serif -Nfontsize=13 -Gfontsize=13 \
		-Efontsize=12 -Nmargin=0.16,0.08 -Gcolor=gray -Epenwidth=1.2 "$source" |
		sed -e '/^<!--/d; /^ *-->/d; /^<!DOCTYPE/d; /^ "http/d' \
			-e 's| fill="white"| fill="none"|; s| stroke="black"| stroke="currentColor"|g; s| fill="black"| fill="currentColor"|g' \
			-e "s|^<g id=\"graph0\"|<!-- source $sum -->\n<style>svg { color: #1f2328 } text { fill: currentColor } .cluster polygon { stroke: #8c959f } @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>\n&|" >"$name.svg"
done
