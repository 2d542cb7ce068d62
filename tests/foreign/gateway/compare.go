package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
)

// Sends the requests of standard input to the gateway and to another server, and prints the answers that differ. A line
// is `METHOD TARGET BODY`.
func compare(gateway, other string) error {
	lines := bufio.NewScanner(os.Stdin)
	same, different := 0, 0
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), " ", 3)
		if len(parts) != 3 {
			return fmt.Errorf("the line has %d parts: %s", len(parts), lines.Text())
		}
		theirs, err := ask(gateway, parts)
		if err != nil {
			return err
		}
		ours, err := ask(other, parts)
		if err != nil {
			return err
		}
		if reflect.DeepEqual(theirs, ours) {
			same++
			continue
		}
		different++
		fmt.Printf("%s\n  grpc-gateway: %v\n  the other:    %v\n", lines.Text(), theirs, ours)
	}
	fmt.Printf("%d same, %d different\n", same, different)
	return lines.Err()
}

// The status and the JSON values of an answer. Of an error only the code counts, because texts differ.
func ask(server string, parts []string) ([]any, error) {
	req, err := http.NewRequest(parts[0], server+parts[1], strings.NewReader(parts[2]))
	if err != nil {
		return nil, err
	}
	req.Header.Set("content-type", "application/json")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	all := []any{answer.StatusCode}
	values := json.NewDecoder(strings.NewReader(string(content)))
	for {
		var value any
		if err := values.Decode(&value); err == io.EOF {
			return all, nil
		} else if err != nil {
			return append(all, string(content)), nil
		}
		if answer.StatusCode >= 400 {
			failure := value.(map[string]any)
			// Of a stream that fails before its first message.
			if inner, ok := failure["error"].(map[string]any); ok {
				failure = inner
			}
			value = failure["code"]
		}
		if object, ok := value.(map[string]any); ok {
			// The order of its paths has no meaning.
			if mask, ok := object["updateMask"].(string); ok {
				paths := strings.Split(mask, ",")
				slices.Sort(paths)
				object["updateMask"] = strings.Join(paths, ",")
			}
		}
		all = append(all, value)
	}
}
