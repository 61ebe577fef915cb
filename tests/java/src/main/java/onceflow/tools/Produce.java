package onceflow.tools;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Writes payments with an ordinary producer: each queue by one thread, one batch at a time, so that a queue holds its
 * payments in the order of their ids. See {@link Lane} for what is known about copies.
 */
final class Produce {
    private Produce() {
    }

    static int run(Options options) throws Exception {
        Clients clients = new Clients(options);
        String topic = options.text("topic");
        long records = options.number("records", 0, null);
        long seed = options.number("seed", Long.MIN_VALUE, 42L);
        long cards = options.number("cards", 1, 1000L);
        long first = options.number("first-id", 0, 0L);
        boolean byCard = options.choice("spread", "id", "card");
        int batch = (int) options.number("batch", 1, 200L);
        long rate = options.number("rate", 0, 0L);
        String out = options.text("out", null);
        options.end();

        DefaultMQProducer producer = clients.producer();
        List<MessageQueue> queues = Clients.sorted(producer.fetchPublishMessageQueues(topic));
        Pace pace = new Pace(rate, first);
        List<Lane> lanes = new ArrayList<>();
        for (MessageQueue queue : queues) {
            lanes.add(new Lane(producer, queue, batch, pace));
        }
        try (PrintWriter file = out == null ? null : new PrintWriter(Files.newBufferedWriter(Path.of(out)))) {
            for (long id = first; id < first + records; id++) {
                Payment payment = new Payment(seed, cards, id);
                int number = (int) ((byCard ? payment.card : id) % lanes.size());
                String body = payment.json();
                lanes.get(number).plan(id, body.getBytes(StandardCharsets.UTF_8));
                if (file != null) {
                    file.println("{\"queue\":" + number + ",\"payment\":" + body + "}");
                }
            }
        }
        long began = System.nanoTime();
        ExecutorService threads = Executors.newFixedThreadPool(lanes.size());
        List<Future<?>> ends = new ArrayList<>();
        lanes.forEach(lane -> ends.add(threads.submit(lane)));
        for (Future<?> end : ends) {
            end.get();
        }
        report(topic, lanes, System.nanoTime() - began);
        return 0;
    }

    private static void report(String topic, List<Lane> lanes, long nanos) throws Exception {
        StringJoiner queues = new StringJoiner(",", "[", "]");
        long sent = 0;
        long resends = 0;
        long unknown = 0;
        long extra = 0;
        for (Lane lane : lanes) {
            lane.lookBehindTheEnd();
            queues.add(lane.json());
            sent += lane.acknowledged();
            resends += lane.resends();
            unknown += lane.unknown();
            extra += lane.extra();
        }
        System.out.printf("{\"topic\":%s,\"sent\":%d,\"resends\":%d,\"unknown\":%d,\"extra\":%d,\"seconds\":%.3f,\"queues\":%s}%n",
            Json.quote(topic), sent, resends, unknown, extra, nanos / 1e9, queues);
    }
}
