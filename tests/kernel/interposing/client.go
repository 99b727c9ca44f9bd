package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
)

func main() {
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stderr = os.Stderr
	to, _ := command.StdinPipe()
	back, _ := command.StdoutPipe()
	if err := command.Start(); err != nil {
		panic(err)
	}
	reading := bufio.NewReader(back)
	first, _ := reading.ReadString('\n')
	io.WriteString(to, "hello\n")
	answer, _ := reading.ReadString('\n')
	to.Close()
	rest, _ := io.ReadAll(reading)
	command.Wait()
	fmt.Print(first, answer, string(rest), command.ProcessState.ExitCode())
}
