package onceflow.tools;

import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Sends the payments of one queue, batch after batch, each until SEND_OK.
 *
 * <p>A send that ends otherwise may have been stored: the batch is sent again, and a copy may lie in the topic. Nobody
 * else writes to it, so the offsets tell: SEND_OK names the offset of the batch, and whatever lies between the end of
 * one batch and the beginning of the next is extra copies. Copies never hide a payment, and are never guessed.
 */
@SuppressWarnings("deprecation") // The producer that knows the offset of a batch need not be joined by a second client.
final class Lane implements Runnable {
    /** A broker that is killed and started again is away for less than this. */
    private static final int TRIES_MAX = 240;
    private static final long TRY_MS = 500;

    private final DefaultMQProducer producer;
    private final MessageQueue queue;
    private final int batch;
    private final Pace pace;
    private final List<Long> ids = new ArrayList<>();
    private final List<byte[]> bodies = new ArrayList<>();
    /** Stretches of offsets that hold extra copies: [from, to). */
    private final List<long[]> copies = new ArrayList<>();
    private final long begin;
    private long end;
    private long acknowledged;
    private long resends;
    private long unknown;

    Lane(DefaultMQProducer producer, MessageQueue queue, int batch, Pace pace) throws Exception {
        this.producer = producer;
        this.queue = queue;
        this.batch = batch;
        this.pace = pace;
        begin = producer.maxOffset(queue);
        end = begin;
    }

    void plan(long id, byte[] body) {
        ids.add(id);
        bodies.add(body);
    }

    @Override
    public void run() {
        for (int from = 0; from < ids.size(); from += batch) {
            int to = Math.min(ids.size(), from + batch);
            pace.await(ids.get(to - 1));
            note(send(from, to), to - from);
        }
    }

    /** Sends until SEND_OK and returns the offset of the first message. */
    private long send(int from, int to) {
        String last = "";
        for (int tried = 0; tried < TRIES_MAX; tried++) {
            if (tried > 0) {
                resends++;
                Sleep.millis(TRY_MS);
            }
            try {
                // To a chosen queue, the client does not try again by itself. Fresh messages: it adds to their properties.
                SendResult result = producer.send(messages(from, to), queue);
                if (result.getSendStatus() == SendStatus.SEND_OK) {
                    return result.getQueueOffset();
                }
                last = result.getSendStatus().toString();
            } catch (Exception failure) {
                last = failure.toString();
            }
            unknown++;
        }
        throw new IllegalStateException(queue + " took no batch in " + TRIES_MAX + " tries: " + last);
    }

    private List<Message> messages(int from, int to) {
        List<Message> messages = new ArrayList<>();
        for (int i = from; i < to; i++) {
            messages.add(new Message(queue.getTopic(), null, Long.toString(ids.get(i)), bodies.get(i)));
        }
        return messages;
    }

    private void note(long offset, int count) {
        if (offset < end) {
            throw new IllegalStateException(queue + " lost acknowledged messages: end=" + end + " next=" + offset);
        }
        addCopies(offset);
        end = offset + count;
        acknowledged += count;
    }

    private void addCopies(long next) {
        if (next > end) {
            copies.add(new long[] {end, next});
        }
    }

    /** A try that was given up may have been stored behind everything else. */
    void lookBehindTheEnd() throws Exception {
        if (unknown > 0) {
            long stored = producer.maxOffset(queue);
            addCopies(stored);
            end = Math.max(end, stored);
        }
    }

    long acknowledged() {
        return acknowledged;
    }

    long resends() {
        return resends;
    }

    /** Sends that ended without SEND_OK, and so without anybody knowing whether they were stored. */
    long unknown() {
        return unknown;
    }

    long extra() {
        return copies.stream().mapToLong(stretch -> stretch[1] - stretch[0]).sum();
    }

    String json() {
        StringJoiner stretches = new StringJoiner(",", "[", "]");
        copies.forEach(stretch -> stretches.add("[" + stretch[0] + "," + stretch[1] + "]"));
        return String.format("{\"broker\":%s,\"queue\":%d,\"begin\":%d,\"end\":%d,\"sent\":%d,\"copies\":%s}",
            Json.quote(queue.getBrokerName()), queue.getQueueId(), begin, end, acknowledged, stretches);
    }
}
