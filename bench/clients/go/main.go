// Command load sends to a queue and takes from it, as lines of JSON on its input say. It is
// bench/peers/load.py for compiled clients: the same lines, the same answers, the same load.
//
// Arguments: peer, variant, URL. Prints `ready`; then for each line one line, until the input ends.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type request struct {
	Do          string  `json:"do"`
	Queue       Queue   `json:"queue"`
	Connections int     `json:"connections"`
	IdleSeconds float64 `json:"idle_seconds"`
	Seconds     float64 `json:"seconds"`
	PerSecond   int     `json:"per_second"`
	DelaysMS    []int64 `json:"delays_ms"`
	Rows        int     `json:"rows"`
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "load: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("peer, variant and URL, got: %q", arguments)
	}
	maker, known := makers[arguments[0]]
	if !known {
		return fmt.Errorf("a peer that is known, got: %q", arguments[0])
	}
	peer, err := maker(arguments[2], arguments[1])
	if err != nil {
		return err
	}
	fmt.Println("ready")
	load := &load{peer: peer}
	answers := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var asked request
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		answer, err := load.do(asked)
		if err != nil {
			return fmt.Errorf("%s: %w", asked.Do, err)
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}
