// Command example sends a message that is due in half a second, and waits for it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"dejaqueue"
)

func main() {
	address := "dejaq://localhost:7464"
	if len(os.Args) > 1 {
		address = os.Args[1]
	}
	ctx := context.Background()
	client, err := dejaqueue.Dial(address, dejaqueue.Options{APIKey: os.Getenv("DEJAQ_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	if err := client.CreateTopic(ctx, "reminders", nil); err != nil {
		log.Fatal(err)
	}

	producer := client.Producer("reminders")
	defer producer.Close()
	due := time.Now().Add(500 * time.Millisecond)
	reminder := &dejaqueue.Message{Payload: []byte("stretch your legs"), Due: due, Key: "alice"}
	if _, err := producer.Send(ctx, reminder); err != nil {
		log.Fatal(err)
	}

	consumer := client.Consume("reminders", dejaqueue.ConsumeOptions{})
	defer consumer.Close()
	message, err := consumer.Receive(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, never early: %t\n", message.Payload, !time.Now().Before(message.Due))
	if _, err := consumer.Ack(ctx, message); err != nil {
		log.Fatal(err)
	}
}
