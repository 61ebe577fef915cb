package onceflow.tools;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;

/** Makes started clients of the name server that the options give. */
@SuppressWarnings("deprecation") // The pull consumer is: it is also the only one that tells each offset and its end.
final class Clients {
    private final String nameServer;
    private final RPCHook credentials;
    /** Client names and groups must not be shared with another process on the same host. */
    private final String name = "tools-" + ProcessHandle.current().pid();

    Clients(Options options) throws Options.Bad {
        nameServer = options.text("name-server");
        String user = options.text("acl-user", null);
        String password = options.text("acl-password", null);
        if ((user == null) != (password == null)) {
            throw new Options.Bad("--acl-user and --acl-password go together");
        }
        credentials = user == null ? null : new AclClientRPCHook(new SessionCredentials(user, password));
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(name, credentials);
        producer.setNamesrvAddr(nameServer);
        producer.setInstanceName(name);
        producer.setSendMsgTimeout(10_000);
        // Compressed bodies would make "what lies in the topic" depend on a threshold.
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        return producer;
    }

    DefaultMQPullConsumer consumer() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(name, credentials);
        consumer.setNamesrvAddr(nameServer);
        consumer.setInstanceName(name);
        consumer.start();
        return consumer;
    }

    /** The queues in the order of broker and number, the same in every process. */
    static List<MessageQueue> sorted(Iterable<MessageQueue> queues) {
        List<MessageQueue> sorted = new ArrayList<>();
        queues.forEach(sorted::add);
        sorted.sort(Comparator.naturalOrder());
        return sorted;
    }
}
