package onceflow.tools;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Reads every queue of a topic from its first offset to the end it had at the start, and writes one line a message:
 * {@code {"broker","queue","offset","keys","body","properties"}}. The offsets of a queue have no holes; one that does is
 * an error, because then a message is missing.
 */
@SuppressWarnings("deprecation")
final class Consume {
    private static final int PULL_MAX = 1024;
    private static final int TRIES_MAX = 60;
    private static final long TRY_MS = 500;

    private final DefaultMQPullConsumer consumer;
    private final PrintWriter out;
    private final boolean base64;

    private Consume(DefaultMQPullConsumer consumer, PrintWriter out, boolean base64) {
        this.consumer = consumer;
        this.out = out;
        this.base64 = base64;
    }

    static int run(Options options) throws Exception {
        Clients clients = new Clients(options);
        String topic = options.text("topic");
        Path file = Path.of(options.text("out"));
        boolean base64 = options.choice("body", "utf8", "base64");
        options.end();
        DefaultMQPullConsumer consumer = clients.consumer();
        long messages = 0;
        try (PrintWriter out = new PrintWriter(Files.newBufferedWriter(file))) {
            Consume consume = new Consume(consumer, out, base64);
            for (MessageQueue queue : Clients.sorted(consumer.fetchSubscribeMessageQueues(topic))) {
                messages += consume.read(queue);
            }
            if (out.checkError()) {
                throw new IllegalStateException("cannot write " + file);
            }
        }
        System.out.println("{\"topic\":" + Json.quote(topic) + ",\"messages\":" + messages + "}");
        return 0;
    }

    private long read(MessageQueue queue) throws Exception {
        long begin = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        long next = begin;
        while (next < end) {
            PullResult result = pull(queue, next);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " has nothing at offset " + next + ": " + result);
            }
            for (MessageExt message : result.getMsgFoundList()) {
                if (message.getQueueOffset() != next) {
                    throw new IllegalStateException(queue + " has a hole: expected=" + next + " got=" + message.getQueueOffset());
                }
                out.println(line(queue, message));
                next++;
                if (next == end) {
                    break;
                }
            }
        }
        return end - begin;
    }

    private PullResult pull(MessageQueue queue, long offset) throws Exception {
        for (int tried = 1; ; tried++) {
            try {
                return consumer.pull(queue, "*", offset, PULL_MAX);
            } catch (Exception failure) {
                if (tried == TRIES_MAX) {
                    throw failure;
                }
                Sleep.millis(TRY_MS);
            }
        }
    }

    private String line(MessageQueue queue, MessageExt message) {
        byte[] body = message.getBody();
        String text = base64 ? Base64.getEncoder().encodeToString(body) : new String(body, StandardCharsets.UTF_8);
        return "{\"broker\":" + Json.quote(queue.getBrokerName()) + ",\"queue\":" + queue.getQueueId()
            + ",\"offset\":" + message.getQueueOffset() + ",\"keys\":" + Json.quote(message.getKeys())
            + ",\"body\":" + Json.quote(text) + ",\"properties\":" + Json.object(message.getProperties()) + "}";
    }
}
