// A handler that reads a review and always says the same, on Go's own HTTP and TLS stack.
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
)

func main() {
	answer := []byte(`{"response":{"uid":"u","allowed":true},"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Printf("{\"port\": %d}\n", listener.Addr().(*net.TCPAddr).Port)
	handler := http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if _, err := io.ReadAll(request.Body); err != nil {
			return
		}
		writer.Header().Set("Content-Type", "application/json")
		writer.Write(answer)
	})
	panic(http.ServeTLS(listener, handler, os.Args[1]+"/tls.crt", os.Args[1]+"/tls.key"))
}
