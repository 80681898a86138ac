// An operator on ConfigMaps: its reconciler succeeds, asks to be called again, fails or panics, as each ConfigMap asks for.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The name of the controller, and of its field manager.
const name = "outcomes"

// After how long a ConfigMap with `requeue-after` is looked at again.
const pause = 50 * time.Millisecond

// outcomes reconciles ConfigMaps. `outcome` says what happens to the first `times` reconciles of one; the next one sets `done`.
type outcomes struct {
	client.Client
	mutex sync.Mutex
	seen  map[types.NamespacedName]int
}

func (o *outcomes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := corev1.ConfigMap{}
	if err := o.Get(ctx, request.NamespacedName, &object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	times, err := strconv.Atoi(object.Data["times"])
	if err != nil {
		return reconcile.Result{}, nil
	}
	o.mutex.Lock()
	o.seen[request.NamespacedName]++
	seen := o.seen[request.NamespacedName]
	o.mutex.Unlock()
	if seen <= times {
		switch outcome := object.Data["outcome"]; outcome {
		case "requeue":
			return reconcile.Result{Requeue: true}, nil
		case "requeue-after":
			return reconcile.Result{RequeueAfter: pause}, nil
		case "error":
			return reconcile.Result{}, errors.New("refused as asked for")
		case "wrapped-error":
			return reconcile.Result{RequeueAfter: time.Hour}, fmt.Errorf("wrapped: %w", errors.New("refused"))
		case "api-error":
			absent := corev1.ConfigMap{}
			absent.Name, absent.Namespace = "absent", request.Namespace
			return reconcile.Result{}, o.Update(ctx, &absent)
		case "panic":
			panic("as asked for")
		}
	}
	if object.Data["done"] == "true" {
		return reconcile.Result{}, nil
	}
	object.Data["done"] = "true"
	return reconcile.Result{}, o.Update(ctx, &object)
}

func run() error {
	metrics := flag.String("metrics", "", "address of /metrics")
	namespace := flag.String("namespace", "", "where its ConfigMaps are")
	flag.Parse() // --kubeconfig is controller-runtime's.
	log.SetLogger(funcr.New(func(prefix, line string) { fmt.Fprintln(os.Stderr, prefix, line) }, funcr.Options{}))
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options(*metrics))
	if err != nil {
		return err
	}
	is := func(object client.Object) bool { return object.GetNamespace() == *namespace }
	recovers := true
	err = ctrl.NewControllerManagedBy(manager).
		Named(name).
		For(&corev1.ConfigMap{}).
		WithEventFilter(predicate.NewPredicateFuncs(is)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 3, RecoverPanic: &recovers}).
		Complete(&outcomes{Client: manager.GetClient(), seen: map[types.NamespacedName]int{}})
	if err != nil {
		return err
	}
	if err := others(manager, is); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
