// buffered: lines through a bufio.Writer. Arguments: the file, the size of the buffer; 0: the default.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
)

func main() {
	size, _ := strconv.Atoi(os.Args[2])
	file, err := os.Create(os.Args[1])
	if err != nil {
		panic(err)
	}
	out := bufio.NewWriter(file)
	if size > 0 {
		out = bufio.NewWriterSize(file, size)
	}
	for n := 0; n < 19000; n++ {
		fmt.Fprintf(out, "line %d\n", n)
	}
	out.Flush()
	file.Close()
}
