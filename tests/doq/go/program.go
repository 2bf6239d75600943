// Command program uses DOQ's gRPC API by the Go client that protoc makes of our doq.proto: what
// users of DOQ have. It says which parts it went through; what is not as it should be ends it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"dejaq.dev/doq"
)

const turns = 50

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

// must gives an answer, or ends the program.
func must[Answer any](answer Answer, err error) Answer {
	if err != nil {
		fail("%T: %v", answer, err)
	}
	return answer
}

func check(holds bool, format string, values ...any) {
	if !holds {
		fail(format, values...)
	}
}

func refused(want codes.Code, err error) {
	check(status.Code(err) == want, "got: %v, not %v", err, want)
}

// queues makes, changes, lists and deletes.
func queues(ctx context.Context, client doq.DOQClient) {
	settings := &doq.QueueSettings{Strategy: doq.QueueSettings_ROUND_ROBIN, AckTimeout: 60}
	made := must(client.CreateQueue(ctx, &doq.CreateQueueRequest{Name: "go", Type: "fair", Settings: settings}))
	check(made.Success, "not made")
	_, err := client.CreateQueue(ctx, &doq.CreateQueueRequest{Name: "go", Type: "delayed"})
	refused(codes.FailedPrecondition, err)
	settings.AckTimeout = 90
	must(client.UpdateQueue(ctx, &doq.UpdateQueueRequest{Name: "go", Settings: settings}))
	shown := must(client.GetQueue(ctx, &doq.GetQueueRequest{Name: "go"}))
	check(shown.Type == "fair" && shown.Settings.AckTimeout == 90, "shown as %v", shown)
	must(client.CreateQueue(ctx, &doq.CreateQueueRequest{Name: "other", Type: "delayed"}))
	listed := must(client.GetQueues(ctx, &doq.GetQueuesRequest{Type: "fair"})).Queues
	check(len(listed) == 1 && listed[0].Name == "go", "listed: %v", listed)
	must(client.DeleteQueue(ctx, &doq.DeleteQueueRequest{Name: "other"}))
	_, err = client.GetQueue(ctx, &doq.GetQueueRequest{Name: "other"})
	refused(codes.NotFound, err)
}

// messages sends and takes one at a time, by each unary call.
func messages(ctx context.Context, client doq.DOQClient) {
	put := func(content, group string, priority int64, id uint64) *doq.EnqueueResponse {
		return must(client.Enqueue(ctx, &doq.EnqueueRequest{
			QueueName: "go", Id: id, Group: group, Priority: priority, Content: content,
			Metadata: map[string]string{"n": "1"},
		}))
	}
	take := func(ack bool) *doq.DequeueResponse {
		return must(client.Dequeue(ctx, &doq.DequeueRequest{QueueName: "go", Ack: ack}))
	}
	ids := must(client.GenerateIDs(ctx, &doq.GenerateIDsRequest{Number: 2})).Ids
	check(len(ids) == 2 && ids[0] != ids[1], "ids: %v", ids)
	slow := put("slow", "a", 9, ids[0])
	check(slow.Id == ids[0], "sent as %d, not %d", slow.Id, ids[0])
	put("other", "b", 5, 0)
	urgent := put("urgent", "a", 7, 0)
	got := must(client.Get(ctx, &doq.GetRequest{QueueName: "go", Id: slow.Id}))
	check(got.Content == "slow" && got.Metadata["n"] == "1", "got: %v", got)
	must(client.UpdatePriority(ctx, &doq.UpdatePriorityRequest{QueueName: "go", Id: urgent.Id, Priority: 1}))
	first := take(false)
	check(first.Content == "urgent" && first.Priority == 1, "first: %v", first)
	must(client.Touch(ctx, &doq.TouchRequest{QueueName: "go", Id: first.Id}))
	must(client.Nack(ctx, &doq.NackRequest{
		QueueName: "go", Id: first.Id, Priority: 8, Metadata: map[string]string{"n": "2"},
	}))
	for _, want := range []string{"other", "urgent"} {
		message := take(false)
		check(message.Content == want, "got: %v, not %s", message, want)
		check(want != "urgent" || message.Metadata["n"] == "2", "metadata: %v", message)
		must(client.Ack(ctx, &doq.AckRequest{QueueName: "go", Id: message.Id}))
	}
	must(client.Delete(ctx, &doq.DeleteRequest{QueueName: "go", Id: slow.Id}))
	_, err := client.Dequeue(ctx, &doq.DequeueRequest{QueueName: "go", Ack: true})
	refused(codes.NotFound, err)
}

// streams sends by one stream and takes by another, a message a turn.
func streams(ctx context.Context, client doq.DOQClient) {
	sending := must(client.EnqueueStream(ctx))
	takingCtx, leave := context.WithCancel(ctx)
	defer leave()
	taking := must(client.DequeueStream(takingCtx))
	ask := func(request *doq.DequeueRequest) {
		if err := taking.Send(request); err != nil {
			fail("DequeueStream: %v", err)
		}
	}
	ask(&doq.DequeueRequest{QueueName: "go", Ack: true})
	for turn := range turns {
		content := strconv.Itoa(turn)
		if err := sending.Send(&doq.EnqueueRequest{QueueName: "go", Content: content, Group: "g"}); err != nil {
			fail("EnqueueStream: %v", err)
		}
		sent, message := must(sending.Recv()), must(taking.Recv())
		check(sent.Content == content && message.Content == content, "sent %v, got %v", sent, message)
		check(sent.Id == message.Id, "sent as %d, got %d", sent.Id, message.Id)
		ask(&doq.DequeueRequest{})
	}
	if err := sending.CloseSend(); err != nil {
		fail("EnqueueStream: %v", err)
	}
	_, err := sending.Recv()
	check(errors.Is(err, io.EOF), "the stream ended with %v", err)
	leave()
	_, err = taking.Recv()
	refused(codes.Canceled, err)
	wrong := must(client.DequeueStream(ctx))
	if err := wrong.Send(&doq.DequeueRequest{QueueName: "none"}); err != nil {
		fail("DequeueStream: %v", err)
	}
	_, err = wrong.Recv()
	refused(codes.NotFound, err)
	must(client.DeleteQueue(ctx, &doq.DeleteQueueRequest{Name: "go"}))
}

func main() {
	seconds := must(strconv.Atoi(os.Args[2]))
	ctx, end := context.WithTimeout(context.Background(), time.Duration(seconds)*time.Second)
	defer end()
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	defer connection.Close()
	client := doq.NewDOQClient(connection)
	for _, part := range []struct {
		name string
		run  func(context.Context, doq.DOQClient)
	}{{"queues", queues}, {"messages", messages}, {"streams", streams}} {
		part.run(ctx, client)
		fmt.Println(part.name)
	}
}
