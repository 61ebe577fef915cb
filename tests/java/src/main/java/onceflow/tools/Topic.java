package onceflow.tools;

import java.util.List;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.route.QueueData;

/** Creates a topic on every broker. Works with automatic creation switched off, too. */
@SuppressWarnings("deprecation") // There is no other door to the broker for a client without the admin tools.
final class Topic {
    private static final long TIMEOUT_MS = 10_000;
    /** Clients see a new topic when its broker has told the name server. */
    private static final int LOOKS_MAX = 150;
    private static final long LOOK_MS = 200;

    private Topic() {
    }

    static int run(Options options) throws Exception {
        Clients clients = new Clients(options);
        String topic = options.text("topic");
        int queues = (int) options.number("queues", 1, 4L);
        options.end();
        DefaultMQProducer producer = clients.producer();
        MQClientAPIImpl api = producer.getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
        ClusterInfo cluster = api.getBrokerClusterInfo(TIMEOUT_MS);
        TopicConfig config = new TopicConfig(topic, queues, queues);
        for (BrokerData broker : cluster.getBrokerAddrTable().values()) {
            api.createTopic(broker.getBrokerAddrs().get(MixAll.MASTER_ID), "TBW102", config, TIMEOUT_MS);
        }
        int wanted = queues * cluster.getBrokerAddrTable().size();
        for (int look = 0; look < LOOKS_MAX; look++) {
            if (seen(api, topic) == wanted) {
                System.out.println("{\"topic\":" + Json.quote(topic) + ",\"queues\":" + wanted + "}");
                return 0;
            }
            Thread.sleep(LOOK_MS);
        }
        System.err.println("topic " + topic + " does not have " + wanted + " queues: it has " + seen(api, topic));
        return 1;
    }

    private static int seen(MQClientAPIImpl api, String topic) throws Exception {
        try {
            List<QueueData> brokers = api.getTopicRouteInfoFromNameServer(topic, TIMEOUT_MS).getQueueDatas();
            return brokers.stream().mapToInt(QueueData::getWriteQueueNums).sum();
        } catch (MQClientException notYet) {
            return 0;
        }
    }
}
