// Command import-spring prints the limits of Spring Cloud Gateway as a rule file for weir. See README.md.
package main

import "github.com/weirproject/weir/tools/ruleimport"

func main() { ruleimport.Main("import-spring", spring) }
