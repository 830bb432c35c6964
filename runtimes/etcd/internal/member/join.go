// SPDX-License-Identifier: Apache-2.0

package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/modelplane/modelplane/runtimes/etcd/internal/connection"
)

// asking others must not take long where nobody is.
const askTime = 5 * time.Second

// start is how etcd begins.
type start struct{ state, cluster string }

// plan tells how to begin. A member with data goes on. One without founds the cluster if it is among those who were to found
// it and nobody is there; else it waits for the others and takes its place among them.
func (o Options) plan(ctx context.Context, known record) (start, error) {
	if o.hasData() {
		return start{embed.ClusterStateFlagExisting, o.cluster(known.Founded)}, nil
	}
	ordinal, err := o.ordinal()
	if err != nil {
		return start{}, err
	}
	others := slices.DeleteFunc(slices.Clone(known.Joined), func(name string) bool { return name == o.Name })
	wait := ordinal >= known.Founded || len(others) > 0 && known.has(o.Name)
	if known.Founded == 1 && !wait {
		return start{embed.ClusterStateFlagNew, o.cluster(1)}, nil
	}
	for told := false; ; told = true {
		found, err := o.join(ctx, ordinal)
		if err == nil {
			return found, nil
		}
		if !wait {
			return start{embed.ClusterStateFlagNew, o.cluster(known.Founded)}, nil
		}
		if !told {
			o.log("waiting for the other members, to become one of them", "others", others, "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return start{}, ctx.Err()
		case <-time.After(o.pause):
		}
	}
}

// join asks the others to have this member among them.
func (o Options) join(ctx context.Context, ordinal int) (start, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client, err := o.askOthers(ordinal)
	if err != nil {
		return start{}, err
	}
	defer func() { _ = client.Close() }()
	list, err := client.MemberList(ctx)
	if err != nil {
		return start{}, fmt.Errorf("nobody tells who the members are: %w", err)
	}
	members := list.Members
	own := slices.IndexFunc(members, func(m *etcdserverpb.Member) bool { return slices.Contains(m.PeerURLs, o.peerURL(ordinal)) })
	if own >= 0 && members[own].Name != "" {
		// It was here before and has lost its data: etcd wants it to come as somebody new.
		if _, err := client.MemberRemove(ctx, members[own].ID); err != nil {
			return start{}, fmt.Errorf("the member that lost its data cannot be taken out: %w", err)
		}
		own = -1
	}
	if own < 0 {
		added, err := client.MemberAdd(ctx, []string{o.peerURL(ordinal)})
		if err != nil {
			return start{}, fmt.Errorf("the others do not take in another member: %w", err)
		}
		members = added.Members
	}
	return start{embed.ClusterStateFlagExisting, o.named(members)}, nil
}

// askOthers is a client of all members but this one.
func (o Options) askOthers(ordinal int) (*clientv3.Client, error) {
	client, _, err := connection.Open(ConnectionFile(o.Run))
	if err != nil {
		return nil, err
	}
	var urls []string
	for i := range most {
		if i != ordinal {
			urls = append(urls, o.clientURL(i))
		}
	}
	if len(urls) == 0 {
		return nil, errors.New("there are no others")
	}
	client.SetEndpoints(urls...)
	return client, nil
}

// named is the list of members as etcd wants it. Those who have not begun yet have no name, but an address.
func (o Options) named(members []*etcdserverpb.Member) string {
	var out []string
	for i := range most {
		for _, m := range members {
			if slices.Contains(m.PeerURLs, o.peerURL(i)) {
				out = append(out, o.podName(i)+"="+o.peerURL(i))
			}
		}
	}
	return strings.Join(out, ",")
}
