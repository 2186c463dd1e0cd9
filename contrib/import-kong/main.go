// Command import-kong prints the limits of Kong as a rule file for weir. See README.md.
package main

import "github.com/weirproject/weir/tools/ruleimport"

func main() { ruleimport.Main("import-kong", kong) }
